"""Celery over kombu's ``azureservicebus`` transport, with an address as in production: ``make check-clients``.

The transport takes the name of a namespace in Azure, and nothing else, so the conformance tests' stand-in for one leads
that name and its certificate here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu import Connection, Exchange, Queue

from tests.conformance.namespaces import KEY, KEY_NAME, here

URL: Final = f"azureservicebus://{KEY_NAME}:{KEY}@flights"
PATIENCE: Final = 20
"""Seconds in which a task ends."""
OPTIONS: Final = {"wait_time_seconds": 1, "peek_lock_seconds": 30}


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[None]:
    here.take_over_the_network()
    here.create("flights")
    yield
    here.delete("flights")


@pytest.fixture
def connection() -> Iterator[Connection]:
    with Connection(URL, transport_options=OPTIONS) as connection:
        yield connection


def test_kombu_acknowledged_message_is_gone(connection: Connection) -> None:
    queue = connection.SimpleQueue("acknowledged")
    queue.put({"carrier": "UA", "flight": 1545}, headers={"origin": "EWR"})
    message = queue.get(timeout=PATIENCE)
    assert message.payload == {"carrier": "UA", "flight": 1545}
    assert message.headers["origin"] == "EWR"
    assert queue.qsize() == 1
    message.ack()
    assert queue.qsize() == 0


def test_kombu_receives_in_order_and_purges(connection: Connection) -> None:
    queue = connection.SimpleQueue("order")
    for number in range(5):
        queue.put(number)
    received = [queue.get(timeout=PATIENCE) for _ in range(3)]
    assert [message.payload for message in received] == [0, 1, 2]
    for message in received:
        message.ack()
    assert queue.qsize() == 2
    assert queue.clear() == 2
    with pytest.raises(queue.Empty):
        queue.get(timeout=1)


def test_kombu_receives_without_acknowledging(connection: Connection) -> None:
    queue = connection.SimpleQueue("express", no_ack=True)
    queue.put("once")
    assert queue.get(timeout=PATIENCE).payload == "once"
    assert queue.qsize() == 0


def test_kombu_creates_and_deletes_a_queue(connection: Connection) -> None:
    channel: Any = connection.channel()
    queue: Any = Queue("short-lived", Exchange("short-lived"), routing_key="short-lived", channel=channel)
    queue.declare()
    administration = channel.queue_mgmt_service
    properties = administration.get_queue("short-lived")
    assert properties.lock_duration.total_seconds() == 30
    queue.delete()
    assert "short-lived" not in [each.name for each in administration.list_queues()]


def test_celery_worker_carries_out_tasks_and_retries_one() -> None:
    app = Celery("flights", broker=URL, set_as_current=False)
    app.conf.update(broker_transport_options=OPTIONS, task_default_queue="tasks", worker_hijack_root_logger=False)
    app.conf.update(worker_enable_remote_control=False, task_acks_late=True, task_create_missing_queue_type="classic")
    done: list[int] = []
    tries: list[int] = []

    def fly(task: Any, number: int) -> None:
        if number == 3:
            tries.append(task.request.retries)
            if task.request.retries < 2:
                raise task.retry(countdown=0)
        done.append(number)

    task: Any = app.task(bind=True, max_retries=2)(fly)
    for number in range(5):
        task.delay(number)
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE):
        deadline = time.monotonic() + PATIENCE
        while len(done) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)  # the worker is another thread, which says nothing when it is done
    assert sorted(done) == list(range(5))
    assert tries == [0, 1, 2]
    with Connection(URL, transport_options=OPTIONS) as connection:
        assert connection.SimpleQueue("tasks").qsize() == 0
