from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from IPython.lib import pretty as ipython

from sbnotebook.amqp import AmqpValue, Long, Symbol, ULong, encode
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import BodyType, EntityAddress, LockedMessage, Message, PeekedMessage
from sbnotebook.model.message import EXTRAS, extras_from_bytes, extras_to_bytes
from sbnotebook.testing.strategies import amqp_values, messages, peeked_messages
from tests.comparison import differences, same_value

ORDERS = EntityAddress("orders")


def peeked(**fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=ORDERS, sequence_number=7, **fields)


@pytest.mark.parametrize("body", ["{}", bytearray(b"{}"), memoryview(b"{}")], ids=lambda body: type(body).__name__)
def test_a_text_or_any_bytes_are_a_body(body: Any) -> None:
    assert Message(body=body) == Message().with_changes(body=body) == Message(body=b"{}")


@pytest.mark.parametrize(
    "fields",
    [{"body": {"id": 1}}, {"body": [1]}, {"body": 5}],
    ids=lambda fields: str(next(iter(fields.values()))),
)
def test_a_body_that_would_be_no_message_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"is bytes or a text, not \w+: give json\.dumps\(body\), or"):
        Message(**fields)
    with pytest.raises(ConfigurationError, match="is bytes or a text"):
        Message().with_changes(**fields)


@given(messages())
def test_a_message_survives_pickle_and_copy(message: Message) -> None:
    for twin in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):  # noqa: S301
        assert type(twin) is Message
        assert differences(twin, message) == {}


@given(peeked_messages())
def test_a_peeked_message_survives_pickle(message: PeekedMessage) -> None:
    twin = pickle.loads(pickle.dumps(message))  # noqa: S301
    assert type(twin) is PeekedMessage
    assert differences(twin, message) == {}
    assert (twin.entity, twin.sequence_number, twin.state) == (message.entity, message.sequence_number, message.state)


def test_a_message_cannot_be_changed() -> None:
    given_properties: dict[str, AmqpValue] = {"a": 1}
    message = Message(subject="s", application_properties=given_properties)
    with pytest.raises(FrozenInstanceError):
        message.subject = "t"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        cast("dict[str, Any]", message.application_properties)["a"] = 2
    given_properties["a"] = 2
    assert message.application_properties == {"a": 1}


def test_a_change_makes_another_message_of_the_same_kind() -> None:
    message = peeked(subject="s", application_properties={"n": Long(1)})
    changed = message.with_changes(subject="t")
    assert (type(changed), changed.subject, message.subject) == (PeekedMessage, "t", "s")
    assert differences(message, changed) == {"subject": ("s", "t")}


def test_a_field_that_a_message_has_not_is_refused_with_advice() -> None:
    with pytest.raises(ConfigurationError, match=r"has no field 'subjct'; did you mean subject\?"):
        Message().with_changes(subjct="s")
    with pytest.raises(ConfigurationError, match=r"has no field 'q{60}'; there are body, body_type, .*, extras\."):
        Message().with_changes(**{"q" * 61: 1})


def test_only_a_locked_message_has_a_lock() -> None:
    locked = LockedMessage(entity=ORDERS, sequence_number=1, lock_token=UUID(int=3))
    assert locked.lock_token == UUID(int=3)
    assert not hasattr(peeked(), "lock_token")
    assert not isinstance(locked, PeekedMessage)


@given(amqp_values())
def test_a_value_is_a_body(value: AmqpValue) -> None:
    message = Message.of_value(value, subject="s")
    assert (message.body_type, message.subject) == (BodyType.VALUE, "s")
    assert same_value(message.body_value, value)


def test_sequences_are_a_body() -> None:
    assert Message.of_sequence().body == encode([])
    message = Message.of_sequence([1, Symbol("a")], [])
    assert message.body_type is BodyType.SEQUENCE
    assert same_value(message.body_value, [[1, Symbol("a")], []])


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (3, 3),
        (Long(4), 4),
        (None, 0),
        ("3", 0),
        (2.5, 0),
        (-1, 0),
        (ULong(2**64 - 1), 2**31 - 1),
    ],
    ids=repr,
)
def test_resubmits_are_counted_whatever_the_property_holds(value: AmqpValue, count: int) -> None:
    assert Message(application_properties={"ResubmitCount": value}).resubmit_count == count
    assert Message().resubmit_count == 0


def test_the_reason_of_a_dead_letter_is_text_whatever_its_type() -> None:
    message = peeked(application_properties={"DeadLetterReason": 5, "DeadLetterErrorDescription": Symbol("why")})
    assert (message.dead_letter_reason, message.dead_letter_error_description) == ("5", "why")
    assert (peeked().dead_letter_reason, peeked().dead_letter_error_description) == (None, None)


def test_a_repr_is_short_and_shows_what_is_set() -> None:
    message = peeked(subject="UA", body=b"x" * 262_144, enqueued_time=datetime(2024, 1, 2, tzinfo=UTC))
    assert repr(message) == (
        "PeekedMessage(body_type=data, subject='UA', entity=orders, sequence_number=7, "
        "enqueued_time=2024-01-02 00:00:00+00:00, delivery_count=0, state=active, "
        f"body={b'x' * 60!r}, 262144 bytes)"
    )


def test_hostile_texts_do_nothing_in_a_repr() -> None:
    shown = repr(peeked(subject="\x1b[31m', state=completed", message_id="m" * 100_000, body=b"\x1b[0m\n"))
    assert shown.isprintable()
    assert len(shown) < 500
    assert 'subject="\\x1b[31m\', state=completed"' in shown


def test_a_repr_never_shows_properties() -> None:
    assert "hunter2" not in repr(Message(application_properties={"password": "hunter2"}))


def test_extras_are_read_only_and_a_copy() -> None:
    extras: dict[str, AmqpValue] = {"durable": True}
    message = Message(extras=extras)
    extras["durable"] = False
    assert message.extras == {"durable": True}
    with pytest.raises(TypeError):
        cast("dict[str, Any]", message.extras)["durable"] = None


def test_an_unreadable_message_says_why() -> None:
    assert Message().unreadable is None
    assert Message(extras={"unreadable": "cut short"}).unreadable == "cut short"


def test_extras_are_one_amqp_map() -> None:
    extras: dict[str, AmqpValue] = {"durable": True, "priority": 4}
    assert extras_from_bytes(extras_to_bytes(extras)) == extras
    assert extras_from_bytes(bytearray(encode(extras))) == extras
    every: dict[str, AmqpValue] = dict.fromkeys(EXTRAS, True)
    assert extras_from_bytes(extras_to_bytes(every)) == every
    assert extras_to_bytes({}) is None
    assert extras_from_bytes(None) == extras_from_bytes(b"") == {}


@pytest.mark.parametrize("data", [b"\xff", encode([1]), encode({"unknown": 1}), encode({"durable": True}) + b"x"])
def test_bytes_that_are_no_extras_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match="The column extras holds AMQP maps"):
        extras_from_bytes(data)


def test_a_locked_message_shows_its_lock_and_no_properties() -> None:
    shown = repr(LockedMessage(entity=ORDERS, sequence_number=1, lock_token=UUID(int=3), extras={"durable": True}))
    assert shown.endswith(f"state=active, lock_token={UUID(int=3)}, body=b'', 0 bytes)")


def test_message_alone_in_a_cell_has_a_line_for_each_field() -> None:
    message = peeked(body=b"\x1b[31m" + b"x" * 5_000, subject="UA", application_properties={"attempt": 2})
    pretty: Any = ipython
    shown = pretty.pretty(message)
    assert shown.splitlines()[0] == "PeekedMessage"
    assert f"{'subject':30}'UA'" in shown.splitlines()
    assert f"{'application_properties':30}'attempt': 2" in shown.splitlines()
    assert shown.splitlines()[-1] == f"{'body':30}'\\x1b[31m{'x' * 995}', 5,005 bytes"
    assert "\x1b" not in shown
    assert len(shown) < 2_000
    assert pretty.pretty([message]) == f"[{message!r}]"
    assert pretty.pretty(Message(body=b"\xff")).splitlines()[-1] == f"{'body':30}b'\\xff', 1 bytes"


def test_message_alone_in_a_cell_shows_20_properties() -> None:
    pretty: Any = ipython
    shown = pretty.pretty(Message(application_properties={f"name{number}": number for number in range(30)}))
    assert shown.count("\napplication_properties") == 20
    assert f"{'application_properties':30}'name19': 19\n" in shown
