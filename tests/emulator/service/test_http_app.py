"""The emulator's own side of HTTP: health, entities, faults, the page."""

from __future__ import annotations

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import RunningEmulator, running
from tests.emulator.service.conftest import token
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


def test_messages_are_shown_and_stay_as_they_are(emulator: RunningEmulator, client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages(ServiceBusMessage("<b>" + "x" * 5_000, message_id="1", subject="<i>"))
        sender.send_messages(ServiceBusMessage(b"\xff\x00", message_id="2"))
        sender.send_messages(ServiceBusMessage("x" * 1_010_000, message_id="3"))
        receiver.receive_messages(max_wait_time=5)
    status, answer = ask(emulator, "GET", "/messages?entity=orders", Authorization="")
    first, second = answer["messages"]
    assert status == 200
    assert first.pop("enqueued_time") > 0
    assert first == {
        "sequence_number": 1,
        "state": "locked",
        "delivery_count": 0,
        "session_id": None,
        "message_id": "1",
        "subject": "<i>",
        "body": "<b>" + "x" * 1_997,
    }
    assert (second["state"], second["body"]) == ("active", "2 bytes: ff 00")
    (large,) = ask(emulator, "GET", "/messages?entity=orders&from=3")[1]["messages"]
    assert large["body"].endswith(" bytes")
    assert emulator.counts("orders") == (3, 1, 0, 0, 0, 0)
    assert ask(emulator, "GET", "/messages?entity=orders/$deadletterqueue")[1] == {"messages": []}
    for wrong in ("entity=nobody", "", "entity=orders&from=-1", "entity=orders&from=" + "9" * 30):
        assert ask(emulator, "GET", f"/messages?{wrong}")[0] == 404


def test_messages_of_an_emulator_with_a_key_of_its_own_need_it() -> None:
    with running(queues=["orders"], key="mine") as emulator:
        assert ask(emulator, "GET", "/messages?entity=orders", Authorization="")[0] == 401
        assert ask(emulator, "GET", "/messages?entity=orders")[0] == 401
        assert ask(emulator, "GET", "/messages?entity=orders", Authorization=token(key="mine"))[0] == 200


def test_the_page_is_served(emulator: RunningEmulator) -> None:
    status, answer = ask(emulator, "GET", "/")
    assert status == 200
    assert answer.startswith("<!DOCTYPE html>")
