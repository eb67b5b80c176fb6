from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from sbnotebook.analysis import query
from sbnotebook.client import Namespace
from sbnotebook.client.finding import Search
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import Connection, Journal

ORDER = "order-7"


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["orders", "payments", "other"], topics={"events": ["audit"]}) as server:
        yield server


@pytest.fixture(scope="module")
def namespace(emulator: RunningEmulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """One order: placed, failed and resubmitted; paid; and told to a topic; among others."""
    journal = Journal(tmp_path_factory.mktemp("found") / "journal")
    with Namespace(Target(Connection(emulator.connection_string), "a test"), journal=journal) as namespace:
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
    assert text.startswith("3 messages with correlation_id 'order-7' in 5 places, 302 looked at.")
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


def test_nothing_found_and_wrong_searches_are_told(namespace: Namespace) -> None:
    nothing = namespace.find(message_id="nowhere")
    assert repr(nothing).startswith("No message with message_id 'nowhere' in ")
    for arguments, words in (
        ({}, "Choose what to find"),
        ({"message_id": ""}, "message_id is a text that is not empty"),
        ({"correlation_id": 7}, "correlation_id is a text that is not empty, not '7'"),
        ({"where": "subjet = 1"}, "did you mean subject"),
        ({"message_id": "x", "max_messages": 0}, "max_messages is a whole number from 1"),
        ({"message_id": "x", "entities": "orderz"}, r"'orderz' \(did you mean orders\?\)"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            namespace.find(**arguments)  # type: ignore[arg-type]


def test_ids_with_the_same_beginning_are_other_messages() -> None:
    from sbnotebook.analysis.frames import to_arrow
    from sbnotebook.model import PeekedMessage

    ids = ["m7", "m70", "m7~1-0123456789abcdef", "m7~x", None]
    messages = [
        PeekedMessage(entity=EntityAddress("q"), sequence_number=n, message_id=each) for n, each in enumerate(ids)
    ]
    kept = Search(message_id="m7").kept(to_arrow(messages))
    assert kept["message_id"].to_pylist() == ["m7", "m7~1-0123456789abcdef"]


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


def test_a_search_of_many_queues_checks_its_expression_once(
    namespace: Namespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"many-{number}" for number in range(12)]
    for number, name in enumerate(names):
        emulator.create_queue(name)
        namespace.entity(name).send([Message(body=b'{"number": %d}' % number)] * 2).raise_for_failures()
    real: Any = query
    start, ask, started, checks = real._start, real._ask, list[object](), list[str]()  # noqa: SLF001 (counted only)

    def counted_start() -> Any:
        process = start()
        started.append(process)
        return process

    def counted_ask(process: Any, table: Any, expression: str, *rest: Any) -> Any:
        checks.extend([expression] if not len(table) else [])
        return ask(process, table, expression, *rest)

    monkeypatch.setattr(query, "_start", counted_start)
    monkeypatch.setattr(query, "_ask", counted_ask)
    found = namespace.find(names, where="body_json.number >= 7")
    assert (len(found), found.looked) == (10, 24)
    assert len(started) <= 2, "a process for each queue takes longer than peeking them"
    assert len(checks) <= 2, "both processes may check it at the same time"
