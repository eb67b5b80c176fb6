"""Resubmits to another namespace."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.errors import DecisionError, ReadOnlyError
from sbnotebook.model import Complete, EntityAddress, OutcomeStatus, Resubmit
from sbnotebook.model.clones import clone_of
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.plan import Limits, Ramp
from tests.filled_queues import settle_first
from tests.settlement.actions.dead_letters import NOW, cut_off, dead_letters
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio

SETTLED, UNCONFIRMED = OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED
TO = Resubmit(to=EntityAddress("target"))


@pytest.fixture
async def other(tmp_path: Path) -> AsyncGenerator[AsyncNamespace]:
    with running(queues=["target"]) as emulator:
        async with namespace_of(emulator, tmp_path / "other") as namespace:
            yield namespace


async def test_resubmit_moves_messages_to_another_namespace(namespace: AsyncNamespace, other: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "moved", 3)
    plan = namespace.entity("moved/$dlq").plan_resubmit(letters[:2], TO, to_namespace=other)
    assert f"to target in {other.host}" in str(plan.preview())
    assert (await plan.apply()).ok
    assert [clone.body for clone in await other.entity("target").peek()] == [b"0", b"1"]
    assert [letter.message_id for letter in await namespace.entity("moved/$dlq").peek()] == ["m2"]
    assert "target" not in {counts.address.name for counts in await namespace.entities()}
    picked = await namespace.entity("moved/$dlq").pick([letters[2].sequence_number], TO, to_namespace=other)
    assert (await picked.apply()).ok
    assert len(await other.entity("target").peek()) == 3


@pytest.mark.parametrize("sent", [True, False])
async def test_an_interrupted_move_is_finished_once(
    namespace: AsyncNamespace, other: AsyncNamespace, shared_emulator: RunningEmulator, *, sent: bool
) -> None:
    name = f"moving-{sent}".lower()
    (letter,) = await dead_letters(namespace, name, 1)
    # A queue of the same name here would drop a second clone, so that it could be sent again: it is not the one.
    if "target" not in {counts.address.name for counts in await namespace.entities()}:
        shared_emulator.create_queue("target", QueueOptions(requires_duplicate_detection=True))
    entry = await cut_off(namespace, letter, "target", sent=False, namespace_of_destination=other.identity())
    if sent:
        assert (await other.entity("target").send([clone_of(letter, TO, None, NOW)])).ok

    (alone,) = await namespace.resume(f"{name}/$dlq")
    (outcome,) = await alone.apply()
    assert outcome.status is UNCONFIRMED
    assert f"went to target in {other.identity()}" in (outcome.description or "")

    (within,) = await namespace.entity(f"{name}/$dlq").plan_resubmit([letter], TO).apply()
    assert within.status is UNCONFIRMED
    assert await namespace.entity("target").peek() == []

    (plan,) = await namespace.resume(f"{name}/$dlq", others=[other])
    (outcome,) = await plan.apply()
    assert outcome.status is (SETTLED if sent else UNCONFIRMED)
    if not sent:
        again = Resubmit(to=TO.to, resend_unknown=True)
        plan = namespace.entity(f"{name}/$dlq").plan_resubmit([letter], again, to_namespace=other)
        assert (await plan.apply()).ok
    assert [clone.message_id for clone in await other.entity("target").peek()] == [entry.clone_id]
    assert await namespace.entity(f"{name}/$dlq").peek() == []
    assert namespace.journal.unfinished(namespace.identity(), f"{name}/$dlq") == []


async def test_a_finished_move_waits_for_its_other_namespace(namespace: AsyncNamespace, other: AsyncNamespace) -> None:
    """The original is completed, which the interrupted run did not record."""
    (letter,) = await dead_letters(namespace, "waiting", 1)
    await cut_off(namespace, letter, "target", sent=False, namespace_of_destination=other.identity())
    assert (await other.entity("target").send([clone_of(letter, TO, None, NOW)])).ok
    await settle_first(namespace.entity("waiting/$dlq"), Complete())

    (alone,) = await namespace.resume("waiting/$dlq")
    (outcome,) = await alone.apply()
    assert outcome.status is UNCONFIRMED
    assert "others=[namespace]" in (outcome.description or "")

    (plan,) = await namespace.resume("waiting/$dlq", others=[other])
    assert [outcome.status for outcome in await plan.apply()] == [SETTLED]
    assert namespace.journal.unfinished(namespace.identity(), "waiting/$dlq") == []


async def test_a_first_message_is_watched_in_the_other_namespace(
    namespace: AsyncNamespace, other: AsyncNamespace
) -> None:
    letters = await dead_letters(namespace, "trying", 2)
    plan = namespace.entity("trying/$dlq").plan_resubmit(letters, TO, to_namespace=other)
    report = await plan.apply(Limits(ramp=Ramp((1,), timedelta(seconds=1))))
    assert [outcome.status for outcome in report] == [SETTLED, OutcomeStatus.SKIPPED]
    assert "1 of 1 still waits" in (report[1].description or "")


async def test_a_move_is_refused_where_a_side_is_read_only(
    namespace: AsyncNamespace, other: AsyncNamespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    letters = await dead_letters(namespace, "kept", 1)
    connection = Connection(shared_emulator.connection_string, write=False)
    async with namespace_of(connection, tmp_path / "third") as reading:
        with pytest.raises(ReadOnlyError):
            other.entity("kept/$dlq").plan_resubmit([], TO, to_namespace=reading)
        with pytest.raises(ReadOnlyError):
            reading.entity("kept/$dlq").plan_resubmit(letters, TO, to_namespace=other)
    for wrong in (None, Resubmit(), Resubmit(to=TO.to, atomic=True)):
        with pytest.raises(DecisionError):
            namespace.entity("kept/$dlq").plan_resubmit(letters, wrong, to_namespace=other)
    assert len(await namespace.entity("kept/$dlq").peek()) == 1


async def test_a_target_that_goes_away_leaves_the_originals(namespace: AsyncNamespace, tmp_path: Path) -> None:
    letters = await dead_letters(namespace, "staying", 2)
    with running(queues=["target"]) as emulator:
        other = namespace_of(emulator, tmp_path / "gone")
        plan = namespace.entity("staying/$dlq").plan_resubmit(letters, TO, to_namespace=other)
    with pytest.raises(Exception, match=r"Nothing listens|Cannot reach|127[.]0[.]0[.]1"):
        await plan.apply()
    assert len(await namespace.entity("staying/$dlq").peek()) == 2
    await other.close()
