from __future__ import annotations

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Message


def test_resume_shows_and_finishes_cut_off_resubmits(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    namespace.create_queue("cut")
    queue, letters = namespace.entity("cut"), namespace.entity("cut/$dlq")
    assert queue.send([Message(body=b"x", message_id="m")]).ok
    with queue.lock(1) as batch:
        assert batch.dead_letter(reason="Bad").ok
    assert namespace.resume() == namespace.unfinished() == []
    shared_emulator.faults.entity("cut").drop_after_nth = 1
    assert str(letters.resubmit(letters.peek(), to="cut").apply()) == "resubmit: 1 unconfirmed"

    (entry,) = namespace.unfinished("CUT/$dlq")
    assert (entry.message_id, entry.destination) == ("m", "cut")
    assert namespace.unfinished("cut") == namespace.resume("cut") == []
    (plan,) = namespace.resume("cut/$dlq")
    assert "complete the original, whose clone was sent (1)" in repr(plan)
    assert plan.apply().ok

    assert len(letters.peek()) == 0
    assert [message.body for message in queue.peek()] == [b"x"]
    assert namespace.resume() == namespace.unfinished() == []
