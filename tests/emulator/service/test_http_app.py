"""The emulator's own side of HTTP: health, entities, faults, the page."""

from __future__ import annotations

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import RunningEmulator
from tests.emulator.service.management_client import ask, described


def test_health_and_entities_are_json(emulator: RunningEmulator, client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    assert ask(emulator, "GET", "/health") == (200, {"status": "ok", "pid": os.getpid()})
    status, answer = ask(emulator, "GET", "/entities")
    (queue,) = answer["queues"]
    assert (status, answer["tier"], answer["topics"]) == (200, "Premium", [])
    assert queue.pop("size_bytes") > 0
    assert queue == {
        "name": "orders",
        "active": 1,
        "locked": 0,
        "deferred": 0,
        "scheduled": 0,
        "dead_letter": 0,
        "transfer_dead_letter": 0,
        "status": "Active",
        "requires_session": False,
        "lock_duration_ms": 30_000,
        "max_delivery_count": 3,
    }


def test_topics_come_with_their_subscriptions(emulator: RunningEmulator, client: ServiceBusClient) -> None:
    ask(emulator, "PUT", "/events", described("TopicDescription", "<Status>Active</Status>"))
    session = described("SubscriptionDescription", "<RequiresSession>true</RequiresSession>")
    ask(emulator, "PUT", "/events/subscriptions/audit", session)
    with client.get_topic_sender("events") as sender:
        sender.send_messages(ServiceBusMessage("x", session_id="1"))
    (topic,) = ask(emulator, "GET", "/entities")[1]["topics"]
    assert (topic["name"], topic["scheduled"], topic["status"]) == ("events", 0, "Active")
    assert topic["size_bytes"] > 0
    (subscription,) = topic["subscriptions"]
    assert (subscription["name"], subscription["active"], subscription["rules"]) == ("audit", 1, 1)
    assert subscription["requires_session"]


def test_faults_are_set_all_or_none(emulator: RunningEmulator) -> None:
    status, answer = ask(
        emulator, "POST", "/faults", '{"accept_delay_ms": 80, "entities": {"Orders": {"reject_nth": 2}}}'
    )
    assert (status, answer["accept_delay_ms"], answer["entities"]["orders"]["reject_nth"]) == (200, 80, 2)
    assert (emulator.faults.accept_delay_ms, emulator.faults.at("orders").reject_nth) == (80, 2)
    for value in ('5, "fly": 1', '"x"', "-1", "true", "1.5", "600001", "9" * 400):
        assert ask(emulator, "POST", "/faults", f'{{"server_busy": 7, "accept_delay_ms": {value}}}')[0] == 400
    for body in ("[]", "{", "[" * 100_000):
        assert ask(emulator, "POST", "/faults", body)[0] == 400
    assert ask(emulator, "POST", "/faults", '{"accept_delay_ms": 0}', "text/plain")[0] == 415
    assert ask(emulator, "GET", "/faults") == (200, answer)


def test_the_page_is_served(emulator: RunningEmulator) -> None:
    status, answer = ask(emulator, "GET", "/")
    assert status == 200
    assert answer.startswith("<!DOCTYPE html>")
