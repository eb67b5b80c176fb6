"""What an entity does for synchronous code beyond the main job."""

from __future__ import annotations

import gzip
import inspect
import re
import signal
import threading
import time
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    encode,
)
from sbnotebook.client import Entity, LockedBatch, Namespace
from sbnotebook.client.async_plan import count_of
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import BodyType, Complete, Message, OutcomeStatus
from sbnotebook.model.edits import edit_json
from sbnotebook.model.property_text import decimal_bytes
from tests.comparison import same_value
from tests.filled_queues import filled_client_queue


def test_receive_and_delete_keeps_messages_in_the_archive(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "deleted", 3)
    with pytest.warns(UserWarning, match="Receive-and-delete removes") as caught:
        taken = queue.receive_and_delete(5, max_wait=0.5)
    assert caught[0].filename == __file__
    assert {message.body for message in taken} == {b"0", b"1", b"2"}
    assert len(queue.peek(show_progress=False)) == 0
    assert namespace.undo(entity="deleted").apply(show_progress=False).settled == 3
    assert len(queue.peek(show_progress=False)) == 3


def test_a_send_that_fails_has_an_outcome_for_each_of_a_list(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "failing-list", 0)
    for send in queue.send, partial(queue.schedule, delay="1h"):
        with pytest.raises(ConfigurationError, match="cannot be made of object") as caught:
            send(["first", object(), "third"])
        assert [outcome.ok for outcome in vars(caught.value)["report"]] == [True, False, False]
    assert count_of({"a": 1, "b": 2}) is None  # one message


@pytest.mark.filterwarnings("ignore:Receive-and-delete removes")
def test_interrupt_has_the_received_messages(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    def press_stop() -> None:
        while shared_emulator.counts("interrupted").active:
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    queue = filled_client_queue(namespace, "interrupted", 3)
    threading.Thread(target=press_stop).start()
    with pytest.raises(KeyboardInterrupt) as interrupt:
        queue.receive_and_delete(100, max_wait=30)
    found: Any = interrupt.value
    assert len(found.messages) == 3
    assert "3 messages were received before" in found.__notes__[0]


def test_peek_returns_as_many_matching_messages_as_asked_for(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "matching", 700)
    found = queue.peek(300, where="subject = 'odd'")
    assert [message.body for message in found] == [b"%d" % n for n in range(1, 600, 2)]
    assert len(queue.peek(400, where="subject = 'odd'")) == 350
    assert len(queue.peek(100).where("subject = 'odd'")) == 50
    with pytest.raises(ConfigurationError, match="no column"):
        queue.peek(1, where="no_such_column = 1")


def test_peek_of_a_session_leaves_out_messages_without_one(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "no-sessions", 3)
    queue.send(Message(body=b"A", session_id="A"))
    assert [message.body for message in queue.peek(session_id="A")] == [b"A"]
    assert [message.body for message in queue.peek(1, session_id="A")] == [b"A"]
    assert len(queue.peek(session_id="B")) == 0


def test_a_loop_over_parts_ends_while_the_consumer_still_fails(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "broken", 250)
    letters = namespace.entity("broken/$dlq")

    def fail() -> None:
        while queue.peek(1):
            with queue.lock(250) as batch:
                batch.dead_letter(reason="Broken")

    fail()
    sizes: list[int] = []
    for part in letters.parts(100):
        assert letters.resubmit(part).apply().settled == len(part)
        sizes.append(len(part))
        fail()
    assert sizes == [100, 100, 50]
    assert {message.resubmit_count for message in letters.peek()} == {1}
    assert [len(part) for part in letters.parts(100, where="subject = 'odd'")] == [100, 25]
    assert list(queue.parts()) == []
    with pytest.raises(ConfigurationError, match="size is a whole number from 1"):
        next(letters.parts(0))


@pytest.mark.parametrize("number", [2**63, 2**70, 2.5, "5"])
def test_peek_refuses_what_is_no_sequence_number(namespace: Namespace, number: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"is a whole number up to 2\*\*63 - 1, not '{number}'"):
        namespace.entity("orders").peek(from_sequence_number=number)


NUMBERS = [*(str(n).encode("utf-16") for n in range(5)), b"\xff"]


def number(body: bytes) -> dict[str, int]:
    return {"n": int(body.decode("utf-16"))}


def test_peek_decodes_before_it_filters(namespace: Namespace) -> None:
    entity = filled_client_queue(namespace, "decoded", NUMBERS)
    found = entity.peek(2, decode=number, where="(body_json->>'$.n')::int > 1")
    assert found.to_arrow().column("body_text").to_pylist() == ['{"n":2}', '{"n":3}']
    assert [message.body.decode("utf-16") for message in found] == ["2", "3"]
    (damaged,) = entity.peek(decode=number, where="decode_error is not null").to_pandas()["decode_error"]
    assert damaged.startswith("UnicodeDecodeError: ")
    assert "decode_error" in entity.peek(decode=number).as_text()
    assert len(entity.peek(decode=number).where("decode_error is null")) == 5
    entity.resubmit(found).apply().raise_for_failures()
    assert entity.peek().to_arrow().column("body").to_pylist()[-2:] == [str(n).encode("utf-16") for n in (2, 3)]


def test_an_entity_without_messages_has_the_column_of_errors(namespace: Namespace) -> None:
    namespace.create_queue("nothing-to-decode")
    entity = namespace.entity("nothing-to-decode")
    assert len(entity.peek(decode=number, where="decode_error is null")) == 0
    assert len(entity.peek(decode=number).where("decode_error is null")) == 0
    with pytest.raises(ConfigurationError, match="There is no decoder 'numbr'"):
        entity.peek(decode="numbr")


def test_parts_and_find_decode_before_they_filter(namespace: Namespace) -> None:
    entity = filled_client_queue(namespace, "decoded-in-parts", NUMBERS)
    even = "(body_json->>'$.n')::int % 2 = 0"
    parts = [[message.body.decode("utf-16") for message in part] for part in entity.parts(2, where=even, decode=number)]
    assert parts == [["0", "2"], ["4"]]
    found = namespace.find(["decoded-in-parts"], where=even, decode=number)
    assert found.to_arrow().column("body_text").to_pylist() == ['{"n":0}', '{"n":2}', '{"n":4}']
    assert len(namespace.find(["decoded-in-parts"], where="decode_error is not null", decode=number)) == 1
    assert len(namespace.find(["decoded-in-parts"], correlation_id="none", decode=number)) == 0


# ----------------------------------------------------------------


def test_lock_locks_ten_or_all_or_none(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "locked", 12)
    with queue.lock() as batch:
        assert len(batch) == 10
    with queue.lock(None, max_wait="2s") as batch:
        assert len(batch) == 12
    with queue.lock(0) as batch:
        assert len(batch) == 0
        assert len(batch.receive()) == 10
        assert len(batch.receive(None)) == 2


def test_dead_letter_takes_the_name_of_the_sdk(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "named", 2)
    with queue.lock() as batch:
        batch.dead_letter(1, reason="R", error_description="D")
        with pytest.raises(ConfigurationError, match="not both"):
            batch.dead_letter(error_description="D", description="E")
    assert namespace.entity("named/$dlq").peek()[0].dead_letter_error_description == "D"


@pytest.mark.parametrize("kind", [Entity, LockedBatch, Namespace])
def test_every_option_has_a_name(kind: type) -> None:
    methods = [method for name, method in vars(kind).items() if inspect.isfunction(method) and name[0] != "_"]
    assert len(methods) > 10
    for method in methods:
        kinds = {each.kind for each in inspect.signature(method).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}, method


# ---------------------------------------------------------------- picking from synchronous code


def test_what_matches_nothing_says_what_is_there(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("unmatched")
    queue, letters = namespace.entity("unmatched"), namespace.entity("unmatched/$dlq")
    nothing = "There are no messages to choose from."
    assert repr(queue.peek(where="subject = 'x'")) == f"unmatched: 0 messages. {nothing}"
    assert repr(queue.pick(None, Complete(), where="subject = 'x'")).endswith(nothing)
    assert repr(queue.purge()) == f"Plan: purge 0 messages of unmatched. {nothing}"

    queue.send([Message(subject="a"), Message(subject="b\x1b"), Message(subject="a")]).raise_for_failures()
    subjects = "Messages looked at: 3, with these subjects: 'a' 2, 'b\\x1b' 1."
    found = queue.peek(where="subject = 'x'")
    assert repr(found[:5]) == f"unmatched: 0 messages. {subjects}"
    assert "these subjects: &#x27;a&#x27; 2" in found._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert subjects in repr(queue.peek().where("subject = 'x'"))
    assert subjects in repr(queue.pick(None, Complete(), where="subject = 'x'"))
    assert subjects in repr(queue.resubmit(where="subject = 'x'", to="unmatched"))
    with queue.lock(3) as batch:
        with pytest.warns(match=re.escape(subjects)):
            assert batch.complete(where="subject = 'x'").settled == 0
        batch.dead_letter(reason="CarrierAway")
    reasons = "Messages looked at: 3, with these dead-letter reasons: 'CarrierAway' 3."
    assert reasons in repr(letters.peek(where="subject = 'x'"))
    assert reasons in repr(letters.pick(None, Complete(), where="subject = 'x'"))
    assert reasons in namespace.find(["unmatched"], where="subject = 'x'").summary
    assert reasons in repr(namespace.entity("unmatched/$dlq").peek()[:3].where("subject = 'x'"))


# ----------------------------------------------------------------


HEAD = b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x99"
TEXT = '{"carrier": "DHL", "fare": 1.10, "id": 12345678901234567890}'
FIXED = '{"carrier": "HERMES", "fare": 1.10, "id": 12345678901234567890}'


def of_net(text: str) -> bytes:
    return HEAD + bytes([len(text)]) + text.encode()


def test_a_repair_keeps_the_form_of_each_body(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("repairs")
    shared_emulator.create_queue("repaired-forms")
    utf16 = "application/json; charset=utf-16le"
    forms: dict[str, dict[str, Any]] = {
        "gzip": {"body": gzip.compress(TEXT.encode()), "content_encoding": "gzip"},
        "property": {"body": gzip.compress(TEXT.encode()), "application_properties": {"Content-Encoding": "gzip"}},
        "of .NET": {"body": of_net(TEXT)},
        "utf-16": {"body": TEXT.encode("utf-16-le"), "content_type": utf16},
        "marked": {"body": TEXT.encode("utf-8-sig")},
        "JMS": {"body": encode(TEXT), "body_type": BodyType.VALUE},
        "broken": {"body": b"no JSON"},
    }
    queue = namespace.entity("repairs")
    queue.send([Message(message_id=name, **fields) for name, fields in forms.items()])
    with queue.lock(10) as batch:
        batch.dead_letter(reason="CarrierAway")

    @edit_json
    def repair(order: dict[str, Any]) -> None:
        order["carrier"] = "HERMES"

    letters = namespace.entity("repairs/$dlq")
    plan = letters.resubmit(letters.peek(), to="repaired-forms", edit=repair)
    said = str(plan.preview(3))
    assert "is refused for 1 of 7, which stays where it is: The edit failed for message #7: The body cannot be" in said
    assert "body.carrier: 'DHL' -> 'HERMES'" in said
    assert "form of the body" not in said
    report = plan.apply()

    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 6 + [OutcomeStatus.FAILED]
    assert "message #7" in str(report[6].description)
    assert [letter.message_id for letter in letters.peek()] == ["broken"]
    clones = {
        str(clone.application_properties["OriginalMessageId"]): clone
        for clone in namespace.entity("repaired-forms").peek()
    }
    assert {name: clone.body_text for name, clone in clones.items()} == dict.fromkeys([*forms][:6], FIXED)
    assert gzip.decompress(clones["gzip"].body) == gzip.decompress(clones["property"].body) == FIXED.encode()
    assert clones["of .NET"].body == of_net(FIXED)
    assert clones["utf-16"].body == FIXED.encode("utf-16-le")
    assert clones["marked"].body == FIXED.encode("utf-8-sig")
    assert clones["JMS"].body_value == FIXED


def test_bytes_that_would_corrupt_a_body_are_not_sent(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("stale-length")
    queue = namespace.entity("stale-length")
    queue.send([Message(body=of_net(TEXT))])
    plan = queue.resubmit(
        queue.peek(), edit=lambda message: message.with_changes(body=message.body.replace(b"DHL", b"HERMES"))
    )
    assert "The edit of message #1 is refused: The body was text in a wrapper of .NET" in str(plan.preview())
    assert [outcome.status for outcome in plan.apply()] == [OutcomeStatus.FAILED]
    assert [message.body for message in queue.peek()] == [of_net(TEXT)]


def _net(name: str, value: Any) -> Described:
    return Described(Symbol(f"com.microsoft:{name}"), value)


PROPERTIES: dict[str, Any] = {
    "price": Decimal128(decimal_bytes(Decimal("33802.4489"))),
    "net price": Decimal128(decimal_bytes(Decimal("-0.50"), is_of_net=True)),
    "small": Decimal32(bytes.fromhex("3180006e")),
    "medium": Decimal64(bytes.fromhex("3200000000000001")),
    "at": _net("datetime-offset", Long(638_000_000_001_234_567)),
    "took": _net("timespan", Long(-901_234_567)),
    "where": _net("uri", "https://contoso.com/orders?id=7"),
    "own": Described(Symbol("acme:money"), Decimal128(decimal_bytes(Decimal("9.99")))),
    "id": UUID(int=7),
    "sent": Timestamp(1_704_067_200_123),
    "grade": Char("ß"),
    "kind": Symbol("express"),
    "legs": Array([Int(1), Int(2)]),
    "nested": [Int(1), {"a": Long(2), "b": _net("uri", "urn:x")}],
    "raw": b"\x00\xff",
}


def test_properties_of_other_clients_are_readable_and_sent_again(
    shared_emulator: RunningEmulator, namespace: Namespace
) -> None:
    shared_emulator.create_queue("typed-properties")
    shared_emulator.create_queue("typed-again")
    queue = namespace.entity("typed-properties")
    queue.send([Message(message_id="typed", application_properties=PROPERTIES), Message(message_id="other")])

    frame: Any = queue.peek().to_pandas()
    texts = dict(frame["application_properties"][0])
    assert {name: texts[name] for name in ("price", "net price", "at", "took", "where")} == {
        "price": "33802.4489",
        "net price": "-0.50",
        "at": "2022-09-28T22:13:20.1234567+00:00",
        "took": "-00:01:30.1234567",
        "where": "https://contoso.com/orders?id=7",
    }
    for condition in (
        "try_cast(application_properties['price'] as decimal(18, 4)) > 33802.4",
        "application_properties['price']::double = 33802.4489",
        "try_cast(application_properties['at'] as timestamptz) < timestamptz '2022-09-29T00:00:00Z'",
        "application_properties['at'] < '2022-09-29'",
        "application_properties['where'] like 'https://contoso.com/%'",
        "application_property_types['at'] = 'com.microsoft:datetime-offset'",
    ):
        assert [message.message_id for message in queue.peek(where=condition)] == ["typed"], condition

    namespace.entity("typed-again").send(frame)
    again = namespace.entity("typed-again").peek()[0]
    assert same_value(dict(again.application_properties), PROPERTIES)
    assert same_value(dict(queue.peek()[0].application_properties), PROPERTIES)


@pytest.mark.parametrize("value", [PROPERTIES["price"], PROPERTIES["at"], {"fare": PROPERTIES["price"]}], ids=str)
def test_bodies_of_such_a_type_are_readable(value: Any) -> None:
    text = Message.of_value(value).body_text or ""
    assert text in ("33802.4489", '"2022-09-28T22:13:20.1234567+00:00"', '{"fare": 33802.4489}')
