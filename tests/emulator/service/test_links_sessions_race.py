"""Time that passes while a link is attached to a session."""

from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import Symbol, UInt, encode
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator
from sbnotebook.emulator.amqp.performatives import RECEIVER, Attach, Source, Target
from tests.emulator.service.conftest import Connect, RawClient

FILTER, TIMEOUT = Symbol("com.microsoft:session-filter"), Symbol("com.microsoft:timeout")


class LeapingClock(ManualClock):
    """Stands still, and leaps 10 seconds ahead when it is looked at for the nth time from now on."""

    looks = 0

    def now(self) -> int:
        if self.looks:
            self.looks -= 1
            if not self.looks:
                self.advance(10)
        return super().now()


def send_short_lived(client: RawClient) -> None:
    """A message of the session "a" that lives for five seconds."""
    client.sender("chats")
    header, properties = encode([None, None, UInt(5_000)]), encode([*[None] * 10, "a"])
    client.transfer(b"\x00\x53\x70" + header + b"\x00\x53\x73" + properties + b"\x00\x53\x75" + encode(b"x"))


@pytest.mark.parametrize(("looks", "is_there"), [(1, False), (2, False), (9, True)])
def test_the_only_message_of_the_next_session_expires_just_now(
    connect: Connect, emulator: RunningEmulator, *, looks: int, is_there: bool
) -> None:
    emulator.create_queue("chats", QueueOptions(requires_session=True))
    clock = LeapingClock()
    emulator.use_clock(clock)
    client = connect()
    send_short_lived(client)
    clock.looks = looks
    source = Source("chats", filter={FILTER: None})
    fields: dict[str, Any] = {
        "role": RECEIVER,
        "source": source,
        "target": Target("x"),
        "properties": {TIMEOUT: UInt(60_000)},
    }
    client.write(Attach(name="s", handle=2, initial_delivery_count=0, **fields))
    if not is_there:
        assert client.sender("chats", 5).target is not None  # so the other one waits by now
        clock.advance(60)
    attached = client.read(Attach)
    assert (attached.source is not None) is is_there
    assert is_there or client.refusal().startswith("com.microsoft:timeout")
