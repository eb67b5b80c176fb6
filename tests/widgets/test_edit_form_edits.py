from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import encode
from sbnotebook.amqp.encoding import ULong, type_name
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.model.body import BodyType
from sbnotebook.widgets.edit_form import STEPS, edit_of_steps


def message(**fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=EntityAddress("orders"), sequence_number=7, **fields)


def edited(given: PeekedMessage, *steps: tuple[str, str, str]) -> Any:
    return edit_of_steps(steps)(given)


def test_properties_keep_their_types_and_new_ones_are_texts() -> None:
    before = message(application_properties={"attempt": ULong(1), "urgent": False, "old": "x"})
    after = edited(
        before,
        ("Set property", "attempt", "12"),
        ("Set property", "urgent", "true"),
        ("Set property", "new", "12"),
        ("Remove property", "old", ""),
        ("Remove property", "none", ""),
    ).application_properties
    assert after == {"attempt": 12, "urgent": True, "new": "12"}
    assert type_name(after["attempt"]) == "ulong"
    with pytest.raises(ConfigurationError, match="'many' is not a property value of the AMQP type 'ulong'"):
        edited(before, ("Set property", "attempt", "many"))


def test_fields_are_set_and_emptied() -> None:
    before = message(subject="old", correlation_id="c", session_id="s")
    after = edited(
        before,
        ("Set subject", "", "new"),
        ("Set content type", "", "application/json"),
        ("Set correlation id", "", ""),
        ("Set session id", "", "t"),
    )
    assert (after.subject, after.content_type, after.correlation_id, after.session_id) == (
        "new",
        "application/json",
        None,
        "t",
    )


def test_bodies_are_changed_as_texts() -> None:
    steps = (
        ("Replace text in body", "??", "UA"),
        ("Set in JSON body", "$.flight", "1546"),
        ("Remove from JSON body", "$.old", ""),
    )
    text = '{"carrier": "??", "flight": 1545, "old": 1, "name": "Grüße"}'
    after = '{"carrier": "UA", "flight": 1546, "name": "Grüße"}'
    assert edited(message(body=text.encode()), *steps).body_text == after
    latin = message(body=text.encode("latin-1"), content_type="application/json; charset=ISO-8859-1")
    assert edited(latin, *steps).body == after.encode("latin-1")
    wrapped = b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x99"
    of_net = message(body=wrapped + bytes([len(text.encode())]) + text.encode())
    assert edited(of_net, *steps).body == wrapped + bytes([len(after.encode())]) + after.encode()
    value = message(body=encode(text), body_type=BodyType.VALUE)
    assert edited(value, *steps).body == encode(after)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff\xfe\xfd", "The body is not text"),
        (b'<string xmlns="http://schemas.microsoft.com/2003/10/Serialization/">??<b/></string>', "more than a text"),
    ],
    ids=["bytes", "wrapped"],
)
def test_bodies_that_would_not_stay_as_they_are_are_refused(body: bytes, said: str) -> None:
    with pytest.raises(DecisionError, match=said):
        edited(message(body=body), ("Replace text in body", "??", "UA"))


def test_what_a_step_does_not_change_stays_the_same_message() -> None:
    before = message(body=b"text")
    assert edited(before, ("Replace text in body", "nowhere", "x")) is before


@pytest.mark.parametrize("kind", [kind for kind, step in STEPS.items() if step.name_of])
def test_a_step_without_its_name_is_refused(kind: str) -> None:
    with pytest.raises(DecisionError, match="write the"):
        edit_of_steps([(kind, "", "x")])
