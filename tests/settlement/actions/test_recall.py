from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.entities import QueueOptions
from sbnotebook.model import EntityAddress, PeekedMessage, Resubmit
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.actions.clone_search import searches_in
from sbnotebook.settlement.actions.recall import Recall, Recalled, Verdict
from sbnotebook.settlement.locking.renewal import Clock, SystemClock
from tests.settlement.actions.dead_letters import cut_off

pytestmark = pytest.mark.anyio


async def recalled(
    namespace: AsyncNamespace,
    to: str,
    now: str,
    *,
    ago: timedelta,
    edited: bool = False,
    resend: bool = False,
    clock: Clock | None = None,
) -> Recalled:
    """Return the record of a resubmit that began some time ago, and whose clone is missing."""
    letter = PeekedMessage(entity=EntityAddress.parse("source/$dlq"), sequence_number=1, message_id="m")
    entry = await cut_off(namespace, letter, to, sent=False, edited=edited)
    begun = (datetime.now(UTC) - ago).isoformat()
    with namespace.journal.database.transaction() as database:
        database.execute("UPDATE resubmits SET changed = ?", (begun,))
    decision = Resubmit(resend_unknown=resend)
    recall = Recall(
        namespace.journal, searches_in(namespace), ("", EntityAddress(now)), decision, clock or SystemClock()
    )
    found, new = await recall.of(
        entry.namespace, [entry.key, replace(entry, enqueued_time="another").key], can_make_edited=not edited
    )
    assert new == Recalled(Verdict.NEW)
    assert found.earlier == entry
    return found


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (0, Verdict.AGAIN),
        (420, Verdict.AGAIN),
        (500, Verdict.UNKNOWN),
        (10**6, Verdict.UNKNOWN),
        (-60, Verdict.UNKNOWN),
    ],
)
async def test_recall_resends_only_while_duplicates_are_dropped(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, seconds: int, verdict: Verdict
) -> None:
    name = f"window{seconds}"
    shared_emulator.create_queue(name, QueueOptions(requires_duplicate_detection=True))  # ten minutes
    found = await recalled(namespace, name, name, ago=timedelta(seconds=seconds))
    assert found.verdict is verdict
    assert ("resend_unknown" in (found.why or "")) is (verdict is Verdict.UNKNOWN)


async def test_recall_goes_by_the_clock_of_the_namespace(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("window-by-clock", QueueOptions(requires_duplicate_detection=True))  # ten minutes

    class Late(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(minutes=9)

    found = await recalled(namespace, "window-by-clock", "window-by-clock", ago=timedelta(0), clock=Late())
    assert found.verdict is Verdict.UNKNOWN


async def test_recall_does_not_resend_to_another_destination(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    for name in ("old-place", "new-place"):
        shared_emulator.create_queue(name, QueueOptions(requires_duplicate_detection=True))
    found = await recalled(namespace, "old-place", "new-place", ago=timedelta(0))
    assert found.verdict is Verdict.UNKNOWN
    found = await recalled(namespace, "old-place", "new-place", ago=timedelta(0), resend=True)
    assert found.verdict is Verdict.AGAIN


async def test_an_edit_that_is_not_known_is_never_made_up(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("edit-lost", QueueOptions(requires_duplicate_detection=True))
    found = await recalled(namespace, "edit-lost", "edit-lost", ago=timedelta(0), edited=True, resend=True)
    assert found.verdict is Verdict.UNKNOWN
    assert "same edit" in (found.why or "")


async def test_recall_remakes_an_edit_unless_it_is_not_known(namespace: AsyncNamespace) -> None:
    letter = PeekedMessage(entity=EntityAddress.parse("source/$dlq"), sequence_number=1, message_id="m")
    entry = await cut_off(namespace, letter, "was-never", sent=False, edited=True)
    recall = Recall(
        namespace.journal, searches_in(namespace), ("", EntityAddress("was-never")), Resubmit(), SystemClock()
    )
    (found,) = await recall.of(entry.namespace, [entry.key])
    assert "resend_unknown" in (found.why or "")
