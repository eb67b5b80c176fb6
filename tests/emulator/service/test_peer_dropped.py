from __future__ import annotations

import pytest

from sbnotebook.amqp import encode
from sbnotebook.emulator import RunningEmulator
from tests.emulator.service.conftest import Connect


def test_bytes_for_a_dropped_client_are_not_written(
    connect: Connect, emulator: RunningEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    client.sender("orders")
    emulator.faults.drop_after_nth = 1
    with pytest.raises((AssertionError, ConnectionResetError)):
        client.transfer(b"\x00\x53\x75" + encode(b"x"))
    # The answer was there when the connection ended: the turn that writes it must not fail for the others.
    assert emulator.counts("orders").active == 1
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]
