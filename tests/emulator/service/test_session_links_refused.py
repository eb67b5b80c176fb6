from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import QueueOptions, running


def test_a_session_id_that_is_no_text_is_refused() -> None:
    number: Any = 1
    with (
        running(queues={"orders": QueueOptions(requires_session=True)}) as emulator,
        ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders"),
        pytest.raises(ServiceBusError, match="must be a string, or null"),
        client.get_queue_receiver("orders", session_id=number),
    ):
        pass
