"""Held batches for synchronous code, and the release of batches that are not closed."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.async_batch import AsyncLockedBatch, close_batches
from sbnotebook.client.portal import on_loop, run
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Complete, DeadLetter, OutcomeStatus
from tests.filled_queues import filled_client_queue, session_messages
from tests.namespaces import opened


def test_batch_warns_of_unreleased_messages(tmp_path: Path) -> None:
    with running() as emulator:
        namespace = opened(emulator.connection_string, tmp_path)
        batch = filled_client_queue(namespace, "stuck", 3).lock(3)
    with pytest.warns(UserWarning, match=r"3 of 3 messages of stuck could not be released.* UTC.*delivery count"):
        batch.close()
    namespace.close()


def test_a_settlement_of_all_reports_lost_locks_once(namespace: Namespace) -> None:
    lost = OutcomeStatus.LOCK_LOST
    with filled_client_queue(namespace, "slipped", 4).lock(4) as batch:
        inner = batch.asynchronous._batch  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        batch.complete([1]).raise_for_failures()
        on_loop(lambda: [inner.table.lose(hold) for hold in inner.table if hold.message.sequence_number != 4])
        assert batch.plan(Complete()).preview().sentence.startswith("complete 3 messages of slipped. 2 of them lost")
        assert [outcome.status for outcome in batch.complete([2])] == [lost]
        report = batch.complete()
        assert {outcome.sequence_number: outcome.status for outcome in report} == {4: OutcomeStatus.SETTLED, 3: lost}
        assert len(batch.complete()) == 0
        assert [outcome.status for outcome in batch.complete([2, 3])] == [lost, lost]


def test_closing_a_namespace_closes_its_batches_and_no_others(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    kept = filled_client_queue(namespace, "left-open", 2).lock(1)
    other = opened(shared_emulator.connection_string, tmp_path / "other")
    batch = other.entity("left-open").lock(1)
    other.close()
    assert batch.release_report is not None
    assert batch.release_report.ok
    assert kept.release_report is None
    assert kept.complete().ok


def test_open_batch_is_released_at_exit(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    filled_client_queue(namespace, "exit", 2)
    script = """
        import sys
        from sbnotebook import connect
        batch = connect(sys.argv[1]).entity("exit").lock(2)
        print(len(batch))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), shared_emulator.connection_string],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ended.stdout.strip(), ended.stderr) == ("2", "")
    with namespace.entity("exit").lock(2, max_wait=2) as batch:
        assert [message.delivery_count for message in batch.messages] == [0, 0]


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_forgotten_batch_is_released_with_a_warning(namespace: Namespace) -> None:
    batch = filled_client_queue(namespace, "forgotten", 2).lock(2)
    inner = batch.asynchronous._batch  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    with pytest.warns(  # noqa: PT031 (nothing else warns)
        ResourceWarning, match=r"A batch of forgotten was forgotten .* its 2 messages are released"
    ):
        del batch
        gc.collect()
    wait_until(lambda: inner.release_report is not None)
    with namespace.entity("forgotten").lock(2, max_wait=5) as again:
        assert [message.delivery_count for message in again.messages] == [0, 0]


def test_plan_keeps_its_batch_alive(namespace: Namespace) -> None:
    filled_client_queue(namespace, "planned", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = namespace.entity("planned").lock(2).plan(Complete())
        gc.collect()
        assert plan.apply(show_progress=False).settled == 2
    with pytest.warns(ResourceWarning, match="0 messages"):  # noqa: PT031 (as above)
        del plan
        gc.collect()
    assert len(namespace.entity("planned").peek(show_progress=False)) == 0


def test_a_batch_that_cannot_be_closed_leaves_no_other_open(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_client_queue(namespace, "all-closed", 3)
    batches = [namespace.entity("all-closed").lock(1) for _ in range(3)]
    close = AsyncLockedBatch.close

    async def fail(batch: AsyncLockedBatch) -> None:
        await close(batch)
        raise OSError("No network.")

    monkeypatch.setattr(AsyncLockedBatch, "close", fail)
    with pytest.raises(OSError, match="No network"):
        run(close_batches)
    assert [batch.is_open for batch in batches] == [False] * 3


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "\u00e9" * 50_000, "\U0001f600" * 40_000, "\ud800" * 5_000, "\0" * 70_000]
)
def test_a_long_text_of_a_dead_letter_is_shortened(namespace: Namespace, text: str) -> None:
    name = f"long-texts-{len(text)}"
    filled_client_queue(namespace, name, 3)
    queue = namespace.entity(name)
    number = queue.peek()[2].sequence_number
    picked = queue.pick([number], DeadLetter(text, text)).apply()
    with queue.lock(2) as batch:
        report = batch.dead_letter(reason=text, description=text) + picked
        assert batch.lock_ends == {}
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 3
    assert all("reason and the description" in (outcome.description or "") for outcome in report)
    letters = namespace.entity(f"{name}/$dlq")
    for letter in letters.peek():
        assert len((letter.dead_letter_error_description or "").encode("utf-16-le")) <= 2 * 4_096
        assert "(sbnotebook shortened this from" in (letter.dead_letter_error_description or "")
    assert len(letters.peek()) == 3


def test_session_is_held_and_its_messages_settled(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "held", session_messages("aab"), requires_session=True)
    assert sorted(queue.sessions()) == ["a", "b"]
    assert [message.message_id for message in queue.peek(session_id="a")] == ["m0", "m1"]
    with queue.session("a", renew_for="5m") as session:
        assert session.session_id == "a"
        session.receive(10, max_wait=1)
        assert session.complete(where="message_id = 'm0'").settled == 1
        session.set_state({"done": 1})
        assert not session.is_lost
        assert "session 'a'" in repr(session)
    with queue.next_session(max_wait=5) as following, queue.next_session(max_wait=5) as other:
        assert {following.session_id, other.session_id} == {"a", "b"}
    with queue.session("a") as session:
        assert session.get_state() == b'{"done": 1}'
        assert session.get_state_text() == '{"done": 1}'
        assert session.get_state_json() == {"done": 1}
        session.set_state(None)
        assert session.get_state() is None
    assert {message.message_id: message.delivery_count for message in queue.peek()} == {"m1": 0, "m2": 0}
