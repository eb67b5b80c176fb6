from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Message
from tests.namespaces import opened

ORDER = "order-7"


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["orders", "payments", "other"], topics={"events": ["audit"]}) as server:
        yield server


@pytest.fixture(scope="module")
def namespace(emulator: RunningEmulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """One order: placed, failed and resubmitted; paid; and told to a topic; among others."""
    with opened(emulator.connection_string, tmp_path_factory.mktemp("found")) as namespace:
        orders = namespace.entity("orders")
        orders.send([Message(body=b"{}", message_id=f"m{n}", correlation_id=f"order-{n}") for n in range(300)])
        with orders.lock(None) as batch:
            batch.dead_letter(where="correlation_id in ('order-7', 'order-8')", reason="NoPrice")
        namespace.entity("payments").send([Message(body=b'{"sum": 9}', message_id="p7", correlation_id=ORDER)])
        namespace.entity("events").send([Message(body=b"x", message_id="e7", correlation_id=ORDER)])
        letters = namespace.entity("orders/$dlq")
        letters.resubmit(letters.peek(where="message_id = 'm7'"), to="orders").apply(show_progress=False)
        yield namespace


def test_a_correlation_id_is_followed_across_entities_in_time(namespace: Namespace) -> None:
    found = namespace.find(correlation_id=ORDER)
    assert [str(each.entity) for each in found] == ["payments", "events/subscriptions/audit", "orders"]
    assert found.places == 5  # with the one sub-queue that has messages
    assert found.looked == 302
    text = repr(found)
    assert text.startswith("3 messages with correlation_id 'order-7' in 5 places, 302 messages checked.")
    assert "clone 1 of m7" in text
    figure: Any = found.timeline()
    assert len(figure.data[0].x) == 3
    assert len(found.where("entity = 'payments'")) == 1


def test_a_message_is_found_with_its_clones_and_originals(namespace: Namespace) -> None:
    letters = namespace.entity("orders/$dlq")
    (clone,) = namespace.find(message_id="m7")
    assert clone.resubmit_count == 1
    assert clone.message_id is not None
    assert [each.message_id for each in namespace.find(message_id=clone.message_id)] == [clone.message_id]
    with namespace.entity("orders").lock(None) as batch:
        batch.dead_letter(where="resubmit_count = 1", reason="Again")
    found = namespace.find(message_id="m7")
    assert [str(each.entity) for each in found] == ["orders/$dlq"]
    assert [each.message_id for each in namespace.find("orders/$dlq", message_id="m8")] == ["m8"]
    assert len(letters.peek()) == 2


def test_expressions_limits_and_depth_bound_a_search(namespace: Namespace) -> None:
    assert [each.message_id for each in namespace.find(where="body_json.sum > 8")] == ["p7"]
    assert not namespace.find(where="body_json.sum > 8", message_id="m7")
    first = namespace.find("orders", where="true", max_messages=10)
    assert (len(first), first.has_more) == (10, True)
    assert "there are more" in first.summary
    assert len(namespace.find(where="true", depth=20, max_messages=100)) == 20 + 1 + 1 + 2
    assert [str(each.entity) for each in namespace.find(["payments", "events"], where="true")] == [
        "payments",
        "events/subscriptions/audit",
    ]


def test_a_search_that_finds_nothing_says_so(namespace: Namespace) -> None:
    nothing = namespace.find(message_id="nowhere")
    assert repr(nothing).startswith("No message with message_id 'nowhere' in ")


def test_a_search_takes_at_most_as_long_as_peeking(namespace: Namespace) -> None:
    places = ["orders", "orders/$dlq", "payments", "other", "events/subscriptions/audit"]
    namespace.find(correlation_id="none")  # opens all links
    began = time.process_time()
    for _ in range(5):
        for place in places:
            namespace.entity(place).peek(show_progress=False)
    peeked = time.process_time() - began
    began = time.process_time()
    for _ in range(5):
        assert not namespace.find(places, correlation_id="none")
    # The listing of the entities is in it, too.
    assert time.process_time() - began < 2.5 * peeked + 0.5
