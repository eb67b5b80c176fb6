from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given

from sbnotebook.errors import DecisionError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.model.edits import Edit, edit_changes, edit_json, edited_by
from sbnotebook.testing.strategies import peeked_messages


def peeked(number: int = 1, **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=EntityAddress("orders"), sequence_number=number, **fields)


def changes(message: PeekedMessage, edit: Edit) -> list[tuple[str, str, str]]:
    return [(change.field, change.before, change.after) for change in edit_changes(message, edit)]


def test_a_function_of_the_json_changes_it_or_returns_another() -> None:
    message = peeked(7, body=b'{"fare":1.10, "big": 12345678901234567890, "name": "Jos\\u00e9", "carrier": "DHL"}')

    @edit_json
    def in_place(order: dict[str, Any]) -> None:
        order["carrier"] = "Ü"

    wanted = message.body.replace(b"DHL", b"\\u00dc")
    assert edited_by(in_place, message).body == wanted
    assert edited_by(edit_json(lambda order: order | {"carrier": "Ü"}), message).body == wanted
    assert edited_by(edit_json(lambda _: [1]), message).body == b"[1]"
    with pytest.raises(DecisionError, match="not an async one"):
        edit_json(cast("Any", _async))


async def _async(order: Any) -> Any:
    return order


FAILING: list[tuple[Callable[[Any], Any], str]] = [
    (lambda message: message["carrier"], "TypeError.*gets a message: for the JSON of its body, use edit_json"),
    (lambda message: message.json, "gave dict for message #7.*edit_json"),
    (lambda message: message.with_changes(body=b"{}"), "of message #7 is refused: The body was gzip"),
    (lambda message: message.with_changes(body="€"), "message #7, line .*has no '€'"),
    (lambda message: message.with_changes(json={"at": set()}), "message #7.*JSON has nothing for set"),
    (partial(int), "message #7: TypeError"),
    (lambda _: sys.exit("no carrier"), "message #7, line .*: SystemExit: no carrier"),
]


def test_only_an_interrupt_of_the_user_passes_an_edit() -> None:
    message = peeked(7, body=b"")

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        edited_by(interrupted, message)
    with ThreadPoolExecutor() as threads:
        error = threads.submit(edited_by, interrupted, message).exception()
    assert isinstance(error, DecisionError)


@pytest.mark.parametrize(("edit", "said"), FAILING, ids=range(7))
def test_an_edit_that_fails_is_one_line_with_the_messages_number(edit: Any, said: str) -> None:
    kind = "application/json; charset=latin-1"
    message = peeked(7, body=gzip.compress(b'{"carrier": "DHL"}'), content_type=kind, content_encoding="gzip")
    with pytest.raises(DecisionError, match=said) as refused:
        edited_by(edit, message)
    assert "\n" not in str(refused.value)


@given(peeked_messages())
def test_an_edit_that_changes_nothing_shows_nothing(message: PeekedMessage) -> None:
    assert changes(message, lambda message: message) == []
    assert changes(message, lambda message: message.with_changes()) == []


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (b'{"a": 1, "b": 2}', b'{"a": 1, "b": 3}', [("body.b", "2", "3")]),
        (b'{"a": 1}', b'{"b": 1}', [("body.a", "1", "(absent)"), ("body.b", "(absent)", "1")]),
        (b'{"a": 1}', b'{"a": 1.0}', [("body.a", "1", "1.0")]),
        (b'{"a": 1}', b'{ "a": 1}', [("body", '{"a": 1}', '{ "a": 1}')]),
        (b"[1]", b"[2]", [("body", "[1]", "[2]")]),
        (b"old", b"", [("body", "old", "")]),
        (b"old", b"\xff", [("body", "b'old'", "b'\\xff'"), ("form of the body", "utf-8", "bytes")]),
        (
            b"\xef\xbb\xbfsame",
            b"same",
            [
                ("body", "b'\\xef\\xbb\\xbfsame'", "b'same'"),
                ("form of the body", "utf-8 with a byte order mark", "utf-8"),
            ],
        ),
        (b'{"a": true, "b": null}', b'{"a": false, "b": 1}', [("body.a", "true", "false"), ("body.b", "null", "1")]),
        (b'{"a": ["\xc3\xa9"]}', b'{"a": {}}', [("body.a", '["\u00e9"]', "{}")]),
        (b'{"a": 2}', b'{"a": 1}', [("body.a", "2", "1")]),
    ],
    ids=range(11),
)
def test_what_changes_in_a_body_is_shown(before: bytes, after: bytes, shown: list[tuple[str, str, str]]) -> None:
    assert changes(peeked(body=before), lambda message: message.with_changes(body=after)) == shown


def test_what_changes_in_the_properties_is_shown() -> None:
    before = peeked(application_properties={"same": 1, "equal": 1.5, "old": "x", "changed": "1"})
    after = {"same": 1, "equal": float("1.5"), "changed": 1, "new": None}
    assert changes(before, lambda message: message.with_changes(application_properties=after)) == [
        ("property old", "x", "(absent)"),
        ("property changed", "1", "1"),
        ("property new", "(absent)", "None"),
    ]
