from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue, Described, Int, Symbol, UInt, ULong, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    section_value,
    split,
    with_list_item,
    with_map_items,
)
from sbnotebook.errors import AmqpDecodeError
from tests.emulator.entities.conftest import encoded

# The same values in forms that an encoder of today would not choose.
WIDE_LONG = b"\x81" + (5).to_bytes(8)
WIDE_TEXT = b"\xb1" + (1).to_bytes(4) + b"a"


def section(payload: bytes, code: int) -> AmqpValue:
    return next(section_value(payload, each) for each in split(payload) if each.code == code)


def test_a_field_is_replaced_and_its_neighbours_keep_their_bytes() -> None:
    before = b"\x00\x53\x73\xc0" + bytes((1 + len(WIDE_LONG + WIDE_TEXT), 2)) + WIDE_LONG + WIDE_TEXT
    after = with_list_item(before, PROPERTIES, 1, encode("b"))
    assert WIDE_LONG in after
    assert section(after, PROPERTIES) == [5, "b"]


def test_an_item_is_replaced_where_it_stands() -> None:
    items = WIDE_TEXT + WIDE_LONG + encode("z") + encode(Int(1))
    before = b"\x00\x53\x74\xc1" + bytes((1 + len(items), 4)) + items
    after = with_map_items(before, APPLICATION_PROPERTIES, {"z": encode("new")})
    assert WIDE_TEXT + WIDE_LONG + encode("z") + encode("new") in after
    replaced = with_map_items(before, APPLICATION_PROPERTIES, {"a": encode("new")})
    assert WIDE_TEXT + encode("new") + encode("z") in replaced


def test_a_key_that_stands_often_is_left_once() -> None:
    names, found = ("a", "b", "a", "a"), ("first", Int(1), "middle", "last")
    items = b"".join(encode(name) + encode(value) for name, value in zip(names, found, strict=True))
    before = b"\x00\x53\x74\xc1" + bytes((1 + len(items), 8)) + items
    assert before.count(encode("a")) == 3
    after = with_map_items(before, APPLICATION_PROPERTIES, {"a": encode("new")})
    assert after.count(encode("a")) == 1
    assert section(after, APPLICATION_PROPERTIES) == {"b": 1, "a": "new"}
    assert section(with_map_items(before, APPLICATION_PROPERTIES, {"a": None}), APPLICATION_PROPERTIES) == {"b": 1}


def test_keys_that_cannot_be_read_stay() -> None:
    odd = b"\xa1\x01\xff" + encode(1) + b"\xa0\x01a" + encode(2)
    before = b"\x00\x53\x74\xc1" + bytes((1 + len(odd), 4)) + odd
    after = with_map_items(before, APPLICATION_PROPERTIES, {"a": encode("new")})
    assert odd + encode("a") + encode("new") in after
    assert with_map_items(after, APPLICATION_PROPERTIES, {"a": None}).endswith(odd)


@pytest.mark.parametrize("code", [HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES])
def test_a_new_section_stands_in_its_order(code: int) -> None:
    others: dict[int, AmqpValue] = {HEADER: [True], MESSAGE_ANNOTATIONS: {Symbol("m"): 1}, PROPERTIES: ["id"]}
    others |= {APPLICATION_PROPERTIES: {"a": 1}, FOOTER: {}}
    del others[code]
    before = encoded(sections=others)
    in_list = code in (HEADER, PROPERTIES)
    after = (
        with_list_item(before, code, 0, encode("x")) if in_list else with_map_items(before, code, {"x": encode("x")})
    )
    codes = [each.code for each in split(after)]
    assert codes == sorted(codes)
    assert section(after, code) == (["x"] if in_list else {"x": "x"})


@pytest.mark.parametrize("first", [True, False])
def test_a_new_header_is_the_first_section(first: bool) -> None:
    annotations = encode(Described(ULong(DELIVERY_ANNOTATIONS), {Symbol("d"): 1}))
    before = annotations + encoded() if first else encoded() + annotations
    after = with_list_item(before, HEADER, 0, encode(True))
    assert after.endswith(before)
    assert split(after)[0].code == HEADER


@pytest.mark.parametrize("value", ["text", UInt(5), True, None])
def test_a_section_of_the_wrong_type_is_refused(value: AmqpValue) -> None:
    with pytest.raises(AmqpDecodeError, match="must be a list"):
        with_list_item(encode(Described(ULong(PROPERTIES), value)), PROPERTIES, 0, None)


@given(
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(0, 2**60), st.text(max_size=300)), max_size=8),
    st.text(max_size=5),
    st.one_of(st.none(), st.integers(0, 9)),
)
def test_a_map_becomes_what_a_dictionary_would(items: dict[str, AmqpValue], key: str, value: int | None) -> None:
    before = encode(Described(ULong(APPLICATION_PROPERTIES), items))
    after = with_map_items(before, APPLICATION_PROPERTIES, {key: None if value is None else encode(value)})
    expected = (
        items | {key: value} if value is not None else {name: each for name, each in items.items() if name != key}
    )
    assert section(after, APPLICATION_PROPERTIES) == expected
