"""Copies: one emulator is the namespace, and another one of the copy's own holds the messages."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusConnectionError

from sbnotebook.amqp import Symbol, ULong
from sbnotebook.client import Messages, Namespace, NamespaceCopy, connect, copying
from sbnotebook.emulator import RunningEmulator, SubscriptionOptions
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.rules.rule import Rule, sql_filter
from sbnotebook.errors import DecisionError
from sbnotebook.model import Message
from tests.comparison import differences
from tests.filled_queues import filled_client_queue, partly_deferred_queue

BODIES = [json.dumps({"email": f"{name}@example.com", "n": n}).encode() for n, name in enumerate(("ada", "bob", "ada"))]
CHOICES: dict[str, Callable[[Messages], dict[str, Any]]] = {
    "all active": lambda _: {},
    "where and max_messages": lambda _: {"where": "subject = 'even'", "max_messages": 1},
    "a group": lambda found: {"messages": found.groups("subject")[0]},
    "numbers": lambda found: {"messages": [found[2].sequence_number, found[0].sequence_number]},
}
MEANT = ([0, 1, 2], [0], [0, 2], [0, 2])


def emulators() -> int:
    """The number of emulators that run in this process."""
    return sum(thread.name == "sbnotebook-emulator" for thread in threading.enumerate())


def key_of(namespace: Namespace) -> str:
    return str(namespace.connection_string).partition("SharedAccessKey=")[2].partition(";")[0]


def numbers(messages: Messages) -> list[int]:
    return [message.sequence_number for message in messages]


@pytest.mark.parametrize(("choice", "expected"), [*zip(CHOICES, MEANT, strict=True)])
def test_copy_has_the_chosen_messages(namespace: Namespace, choice: str, expected: list[int]) -> None:
    queue = filled_client_queue(namespace, f"chosen {choice}".replace(" ", "-"), BODIES)
    found = queue.peek()
    with namespace.copy_to("emulator", queue.address, **CHOICES[choice](found)) as copy:
        assert [*copy.entity(queue.address).peek()] == [found[place] for place in expected]
        assert numbers(copy.messages) == [found[place].sequence_number for place in expected]
    assert [*queue.peek()] == [*found]


def test_an_abandoned_copy_ends_by_itself(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    queue, before = filled_client_queue(namespace, "abandoned", BODIES), emulators()
    copy = namespace.copy_to("emulator", queue.address)
    assert emulators() == before + 1
    del copy
    gc.collect()
    latest = time.monotonic() + 30
    while emulators() > before and time.monotonic() < latest:
        time.sleep(0.05)
    assert emulators() == before
    assert not caplog.records


def test_copy_has_options_rules_and_sessions(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    shared_emulator.create_topic("copied-events")
    shared_emulator.create_subscription(
        "copied-events",
        "audit",
        SubscriptionOptions(requires_session=True, max_delivery_count=3),
        rules=[Rule("only", sql_filter("sys.Label <> 'odd'"))],
    )
    sent = [Message(body=b"%d" % n, session_id="ab"[n % 2], subject="even") for n in range(4)]
    namespace.entity("copied-events").send(sent).raise_for_failures()
    audit = "copied-events/subscriptions/audit"
    with namespace.copy_to("emulator", audit) as copy:
        with copy.entity(audit).session("b") as session:
            session.receive(2)
            assert [message.body for message in session.messages] == [b"1", b"3"]
            session.complete()
        copy.entity("copied-events").send(
            [Message(subject="odd", session_id="a"), Message(session_id="c", subject="x")]
        )
        assert copy.entity(audit).sessions() == ["a", "c"]
    assert len(namespace.entity(audit).peek()) == 4


def test_copy_is_lossless_and_leaves_the_namespace_as_it_is(namespace: Namespace) -> None:
    namespace.create_queue("whole", max_delivery_count=9)
    queue = namespace.entity("whole")
    strange = Message.of_value({"a": ULong(1)}, correlation_id="c", application_properties={"n": ULong(5)})
    queue.send([strange, Message(body=b"x", extras={"message_annotations": {Symbol("x-own"): 1}})]).raise_for_failures()
    with queue.lock(2) as batch:
        batch.abandon([batch.messages[0]])
        batch.dead_letter([batch.messages[0]], reason="Bad", description="why")
    read_only = connect(namespace.connection_string, write=False)
    for address in ("whole", "whole/$dlq"):
        before = namespace.entity(address).peek()
        with read_only, read_only.copy_to("emulator", address) as copy:
            (again,) = copy.entity(address).peek()
            assert again == before[0]
            assert differences(again, before[0]) == {}
            assert copy.entity(address).purge().apply().settled == 1
        assert [*namespace.entity(address).peek()] == [*before]
    assert namespace.entity("whole").peek()[0].delivery_count == 1


def test_copies_stay_deferred_and_scheduled(namespace: Namespace) -> None:
    namespace.create_queue("states")
    queue = partly_deferred_queue(namespace, "states", 3, deferred=1)
    queue.schedule([Message(body=b"later")], delay="1h").raise_for_failures()
    found = queue.peek()
    with namespace.copy_to("emulator", "states", found) as copy:
        copied = copy.entity("states")
        assert [message.state for message in copied.peek()] == [message.state for message in found]
        (counts,) = copy.counts("states")
        assert (counts.active, counts.scheduled) == (3, 1)  # Service Bus counts deferred messages as active
        assert copied.deferred().complete().apply().settled == 1
        assert copied.cancel_scheduled(copied.scheduled()).apply().settled == 1
        assert len(copied.peek()) == 2


def test_copy_closes_with_all_that_it_started(namespace: Namespace) -> None:
    filled_client_queue(namespace, "closed", BODIES)
    before = emulators()
    copy = namespace.copy_to("emulator", "closed")
    address, folder = copy.connection_string, copy.asynchronous._copied.folder  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    assert isinstance(copy, NamespaceCopy)
    report = copy.entity("closed").purge().apply()
    assert copy.undo(report).apply().settled == 3  # from an archive of its own
    assert copy.archive is not None
    assert copy.archive.path.parent == folder
    copy.close()
    copy.close()
    assert not folder.exists()
    assert emulators() == before
    with pytest.raises(ServiceBusConnectionError, match="emulator"):
        connect(address)


def test_copy_has_a_key_of_its_own(namespace: Namespace) -> None:
    filled_client_queue(namespace, "private", BODIES)
    key = key_of(namespace)
    with namespace.copy_to("emulator", "private") as copy, namespace.copy_to("emulator", "private") as other:
        own = [key_of(copy), key_of(other)]
        assert len({key, *own}) == 3
        assert not [each for each in own if each in repr(copy)]
        for stolen in (key, own[1]):
            with pytest.raises(ServiceBusAuthenticationError):
                connect(str(copy.connection_string).replace(own[0], stolen))
        with connect(copy.connection_string) as same_user:
            assert len(same_user.entity("private").peek()) == 3


def test_unreadable_messages_are_left_out_and_named(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    queue = filled_client_queue(namespace, "partly", BODIES)
    broken = BrokeredMessage(77, 77, 0, b"\x00\x53\x75\xa1\x03bad", 8)
    shared_emulator.put("partly", [broken])
    with namespace.copy_to("emulator", "partly", mask="$.email") as copy:
        assert len(copy.entity(queue.address).peek()) == 3
        assert [*copy.unreadable] == [77]
        assert (copy.masked, copy.masked_whole) == ({"$.email": 3}, 0)
        assert "3 messages of partly. Masked: $.email in 3; 0 bodies as a whole. 1 could not be read" in repr(copy)
    with pytest.raises(DecisionError, match="None of the 1 messages can be read"):
        namespace.copy_to("emulator", "partly", 77)


def test_copy_is_refused_in_a_sentence(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = filled_client_queue(namespace, "refusing", BODIES)
    first = queue.peek()[0].sequence_number
    before = emulators()
    with pytest.raises(DecisionError, match=r"None of the 3 messages has a value at \$\.emial"):
        namespace.copy_to("emulator", "refusing", mask=["$.email", "$.emial"])
    with pytest.raises(DecisionError, match="are in refusing, and not in refusing/"):
        namespace.copy_to("emulator", "refusing/$dlq", queue.peek())
    monkeypatch.setattr(copying, "MOST", 2)
    for choice in (None, range(first, first + 3)):
        with pytest.raises(DecisionError, match="2 messages at most, and these are more"):
            namespace.copy_to("emulator", "refusing", choice)
    monkeypatch.setattr(copying, "_MOST_BYTES", 10)
    with pytest.raises(DecisionError, match="10 bytes of bodies at most, and these have"):
        namespace.copy_to("emulator", "refusing", max_messages=1)
    assert emulators() == before
    assert [message.delivery_count for message in queue.peek()] == [0, 0, 0]
