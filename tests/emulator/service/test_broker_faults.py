"""Breaking things over HTTP; what the SDK sees of it is in ``test_faults``."""

from __future__ import annotations

import json

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import RunningEmulator
from tests.emulator.service.conftest import Connect
from tests.emulator.service.management_client import ask


def post(emulator: RunningEmulator, **document: object) -> tuple[int, dict[str, object] | str]:
    return ask(emulator, "POST", "/faults", json.dumps(document))


def test_one_request_changes_many_faults(emulator: RunningEmulator, client: ServiceBusClient, connect: Connect) -> None:
    raw = connect()
    raw.receiver("orders")
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        receiver.receive_messages(max_wait_time=5)
        status, answer = post(
            emulator,
            accept_delay_ms=5,
            entities={"Orders": {"reject_nth": 3, "reject_condition": "amqp:internal-error", "unconfirmed": "ranges"}},
            lose_locks="orders",
            close_links="orders",
        )
        assert status == 200
        assert isinstance(answer, dict)
        assert (answer["accept_delay_ms"], emulator.faults.at("orders").reject_nth) == (5, 3)
        assert ask(emulator, "GET", "/faults") == (200, answer)
        assert emulator.counts("orders").locked == 0
        assert "amqp:link:detach-forced" in raw.refusal()


def test_connections_are_dropped_frozen_and_thawed(emulator: RunningEmulator, connect: Connect) -> None:
    raw = connect()
    raw.receiver("orders")
    assert post(emulator, freeze="orders")[0] == 200
    assert post(emulator, thaw=True)[0] == 200
    raw.receiver("orders", 2)
    assert post(emulator, drop_connections=True)[0] == 200
    with pytest.raises((AssertionError, ConnectionError)):
        raw.read_frame()


def test_links_for_requests_are_closed_alone(emulator: RunningEmulator, connect: Connect) -> None:
    raw = connect()
    raw.receiver("orders")
    assert post(emulator, close_links="orders/$management")[0] == 200
    raw.receiver("orders", 2)  # a detach of the first link would come before its answer
    assert post(emulator, close_links="orders")[0] == 200
    assert "amqp:link:detach-forced" in raw.refusal()


@pytest.mark.parametrize(
    "document",
    [
        {"lose_locks": "nobody"},
        {"lose_locks": False},
        {"lose_locks": "orders/$management"},
        {"close_links": 5},
        {"thaw": "orders"},
        {"freeze_new": False},
        {"reset": 1},
        {"fly": True},
        {"entities": {"orders": {"lose_locks": True}}},
    ],
)
def test_an_invalid_request_changes_nothing(emulator: RunningEmulator, document: dict[str, object]) -> None:
    post(emulator, server_busy=5)
    status, sentence = post(emulator, **{"server_busy": 1, "reset": True, **document})
    assert status == 400
    assert isinstance(sentence, str)
    assert ask(emulator, "POST", "/faults", json.dumps({"server_busy": 1}), "text/plain")[0] == 415
    assert emulator.faults.server_busy == 5


def test_reset_comes_first(emulator: RunningEmulator) -> None:
    post(emulator, server_busy=5, reject_nth=2, entities={"orders": {"server_busy": 1}}, freeze_new=True)
    status, answer = post(emulator, reset=True, reject_nth=1)
    assert status == 200
    assert isinstance(answer, dict)
    assert (answer["server_busy"], answer["reject_nth"], answer["entities"]) == (0, 1, {})
