"""HTTP, by the SDK's administration client and by hand."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from sbnotebook.emulator import RunningEmulator
from tests.emulator.service.conftest import token

Ask = Callable[..., tuple[int, Any]]


class PlainHttp(RequestsTransport):
    """The administration client speaks https only."""

    def send(self, request: Any, **config: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **config)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@pytest.fixture
def admin(emulator: RunningEmulator) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        emulator.connection_string, transport=PlainHttp(), retry_total=0
    ) as client:
        yield client


@pytest.fixture
def ask(emulator: RunningEmulator) -> Ask:
    def ask(method: str, path: str, body: str | None = None, kind: str = "application/json") -> tuple[int, Any]:
        connection = http.client.HTTPConnection(emulator.http_url.removeprefix("http://"), timeout=5)
        connection.request(method, path, body, {"Content-Type": kind, "Authorization": token()})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(content) if is_json else content.decode()

    return ask


def test_a_queue_is_created_changed_and_deleted(
    admin: ServiceBusAdministrationClient, emulator: RunningEmulator
) -> None:
    created = admin.create_queue("Team/Bills", lock_duration=timedelta(seconds=45), max_delivery_count=4)
    assert (created.name, created.lock_duration, created.max_delivery_count) == (
        "Team/Bills",
        timedelta(seconds=45),
        4,
    )
    found = admin.get_queue("team/bills")
    found.max_delivery_count = 9
    admin.update_queue(found)
    assert admin.get_queue("Team/Bills").max_delivery_count == 9
    admin.delete_queue("Team/Bills")
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("Team/Bills")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_queue("Team/Bills")
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(found)
    assert emulator.counts("orders").active == 0


def test_a_name_is_given_once_and_what_is_not_there_is_refused(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceExistsError):
        admin.create_queue("orders")
    with pytest.raises(HttpResponseError, match="RequiresSession"):
        admin.create_queue("sessions", requires_session=True)
    with pytest.raises(HttpResponseError, match="queues only"):
        admin.create_topic("events")


def test_queues_are_listed_in_pages_with_their_counts(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    for name in "abcde":
        admin.create_queue(name)
    assert [queue.name for queue in admin.list_queues(max_page_size=2)] == ["a", "b", "c", "d", "e", "orders"]
    assert list(admin.list_topics_runtime_properties()) == []
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages([ServiceBusMessage("x" * 100) for _ in range(4)])
        first, second = receiver.receive_messages(2, max_wait_time=5)
        receiver.defer_message(first)
        receiver.dead_letter_message(second)
    counts = admin.get_queue_runtime_properties("orders")
    assert (counts.active_message_count, counts.dead_letter_message_count, counts.total_message_count) == (3, 1, 4)
    assert counts.size_in_bytes is not None
    assert counts.size_in_bytes > 400
    assert admin.get_namespace_properties().messaging_sku == "Premium"


def test_a_queue_is_made_by_hand(ask: Ask, emulator: RunningEmulator) -> None:
    assert ask("PUT", "/bills")[0] == 201
    assert emulator.counts("bills").active == 0
    assert ask("PUT", "/bills")[0] == 409
    assert ask("PUT", "/a%20b")[0] == 400
    assert ask("GET", "/nobody")[0] == 404
    for query in ("$top=x", "$top=0", f"$skip={'9' * 5_000}"):
        assert ask("GET", f"/$Resources/queues?{query}")[0] == 400
    assert ask("DELETE", "/bills") == (200, "")
    assert ask("GET", "/bills")[0] == 404


def test_health_and_entities_are_json(ask: Ask, client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    assert ask("GET", "/health") == (200, {"status": "ok", "pid": os.getpid()})
    status, answer = ask("GET", "/entities")
    (queue,) = answer["queues"]
    assert status == 200
    assert queue.pop("size_bytes") > 0
    assert queue == {
        "name": "orders",
        "active": 1,
        "locked": 0,
        "deferred": 0,
        "scheduled": 0,
        "dead_letter": 0,
        "lock_duration_ms": 30_000,
        "max_delivery_count": 3,
    }


def test_faults_are_set_all_or_none(ask: Ask, emulator: RunningEmulator) -> None:
    assert ask("POST", "/faults", '{"accept_delay_ms": 80}') == (200, {"accept_delay_ms": 80})
    assert emulator.faults.accept_delay_ms == 80
    for value in ('5, "fly": 1', '"x"', "-1", "true", "1.5", "600001", "9" * 400):
        assert ask("POST", "/faults", f'{{"accept_delay_ms": {value}}}')[0] == 400
    for body in ("[]", "{", "[" * 100_000):
        assert ask("POST", "/faults", body)[0] == 400
    assert ask("POST", "/faults", '{"accept_delay_ms": 0}', "text/plain")[0] == 415
    assert ask("GET", "/faults") == (200, {"accept_delay_ms": 80})
