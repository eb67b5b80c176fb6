from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    AmqpValue,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    decode_all,
    decode_exactly,
    encode,
    skip,
)
from sbnotebook.errors import AmqpDecodeError


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("40", None),
        ("41", True),
        ("42", False),
        ("5601", True),
        ("5600", False),
        ("43", UInt(0)),
        ("5207", UInt(7)),
        ("7000000007", UInt(7)),
        ("44", ULong(0)),
        ("5307", ULong(7)),
        ("800000000000000007", ULong(7)),
        ("55ff", Long(-1)),
        ("81ffffffffffffffff", Long(-1)),
        ("45", []),
        ("c00100", []),
        ("d00000000400000000", []),
        ("c105025407a100", {7: ""}),
        ("a003000102", b"\x00\x01\x02"),
        ("b000000003000102", b"\x00\x01\x02"),
        ("a102c3a9", "\u00e9"),
        ("b100000002c3a9", "\u00e9"),
        ("a30161", Symbol("a")),
        ("b30000000161", Symbol("a")),
        ("00531041", Described(ULong(0x10), True)),
        ("e004025101ff", Array([1, -1])),
        ("e0020051", Array()),
        ("e00100", Array()),
        ("f00000000400000000", Array()),
    ],
)
def test_every_encoding_of_a_value_is_read(encoded: str, value: object) -> None:
    data = bytes.fromhex(encoded)
    found = decode_exactly(data)
    assert found == value
    assert type(found) is type(value)
    assert skip(data) == len(data)


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ("40", type(None)), ("41 42 56", bool), ("50", UByte), ("51", Byte), ("60", UShort), ("61", Short),
        ("43 52 70", UInt), ("44 53 80", ULong), ("54 71", Int), ("55 81", Long), ("72", Float), ("82", float),
        ("73", Char), ("83", Timestamp), ("98", UUID), ("74", Decimal32), ("84", Decimal64), ("94", Decimal128),
        ("a0 b0", bytes), ("a1 b1", str), ("a3 b3", Symbol), ("45 c0 d0", list), ("c1 d1", dict), ("e0 f0", Array),
    ],
)  # fmt: skip
def test_an_empty_array_knows_its_type_in_each_encoding(codes: str, kind: type) -> None:
    for code in bytes.fromhex(codes):
        found = decode_exactly(bytes((0xE0, 2, 0, code)))
        assert isinstance(found, Array)
        assert found.element_type is kind


@pytest.mark.parametrize(("encoded", "value"), [("e0050000530154", []), ("e0050100445407", [Described(ULong(0), 7)])])
def test_a_short_array_of_described_values_can_be_sent_on(encoded: str, value: list[object]) -> None:
    found = decode_exactly(bytes.fromhex(encoded))
    assert found == decode_exactly(encode(found)) == value


@pytest.mark.parametrize("character", ["\ud7ff", "\ue000", "\U0010ffff"])
def test_a_character_beside_the_surrogates_is_read(character: str) -> None:
    assert decode_exactly(encode(Char(character))) == character


def test_a_value_may_stand_in_the_middle_of_the_bytes() -> None:
    assert decode(b"\x40\x54\x07\x40", 1) == (7, 3)


@pytest.mark.parametrize("start", range(4))
def test_an_unknown_type_is_named_wherever_it_stands(start: int) -> None:
    with pytest.raises(AmqpDecodeError, match="no AMQP type 0x3f"):
        decode(b"\x40" * start + b"\x3f\x41", start)


def test_decode_exactly_refuses_what_follows() -> None:
    with pytest.raises(AmqpDecodeError, match="1 bytes follow"):
        decode_exactly(b"\x40\x40")


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        ("", "byte 0"),
        ("3f", "no AMQP type 0x3f"),
        ("ff", "no AMQP type 0xff"),
        ("70000000", "byte 0"),
        ("a00501", "cut short"),
        ("b0ffffffff00", "cut short"),
        ("a101ff", "byte 0"),
        ("a301e9", "byte 0"),
        ("5602", "byte 0"),
        ("7300110000", "byte 0"),
        ("73ffffffff", "byte 0"),
        ("730000d800", "surrogate"),
        ("730000dfff", "surrogate"),
        ("c00201", "cut short"),
        ("c0024040", "more elements"),
        ("c0010140", "more elements"),
        ("c0000040", "cut short"),
        ("c00201a10161", "does not fit"),
        ("c003014040", "does not fit"),
        ("c1020140", "key without a value"),
        ("c103024540", "cannot be read"),
        ("d0ffffffff00000000", "cut short"),
        ("e003010040", "byte 0"),
        ("e00101", "byte 0"),
        ("e002003f", "no AMQP type 0x3f"),
        ("e0050100530100", "no AMQP type 0x00"),
        ("e004015001ff", "does not fit"),
        ("e00301a1056162636465", "does not fit"),
        ("f0000000050000ffff40", "more elements"),
        ("f000000005ffffffff40", "more elements"),
        ("f000000005ffffffff45", "more elements"),
        ("00", "byte 0"),
        ("0053", "byte 0"),
    ],
)
def test_damaged_bytes_are_refused(encoded: str, why: str) -> None:
    with pytest.raises(AmqpDecodeError, match=why):
        decode_exactly(bytes.fromhex(encoded))


@pytest.mark.parametrize("head", ["00", "00534000", "c00f01", "e00f0100"])
def test_deep_nesting_is_refused(head: str) -> None:
    with pytest.raises(AmqpDecodeError):
        decode(bytes.fromhex(head) * 20_000)
    with pytest.raises(AmqpDecodeError):
        skip(b"\x00" * 20_000)


def test_small_bytes_cannot_ask_for_much_memory() -> None:
    # 60,000 arrays of ten bytes, each of as many nulls as it may claim.
    for claimed in (1 << 16, 1 << 10, 65):
        array = b"\xf0" + (5).to_bytes(4, "big") + claimed.to_bytes(4, "big") + b"\x40"
        content = array * 60_000
        data = b"\xd0" + (len(content) + 4).to_bytes(4, "big") + (60_000).to_bytes(4, "big") + content
        with pytest.raises(AmqpDecodeError, match="more elements"):
            decode(data)


def _is_value_or_refused(data: bytes) -> None:
    try:
        _, end = decode(data)
    except AmqpDecodeError:
        pass
    else:
        assert 0 < end <= len(data)
        assert skip(data) == end
    try:
        end = skip(data)
    except AmqpDecodeError:
        pass
    else:
        assert 0 < end <= len(data)


@given(st.binary(max_size=300))
@example(bytes.fromhex("7300110000"))
@example(bytes.fromhex("d00000000affffffff"))
def test_random_bytes_are_a_value_or_refused(data: bytes) -> None:
    _is_value_or_refused(data)


_SEED = encode(
    [
        {Symbol("a"): ULong(300), "b": [1, 2.5, None, True], "c": {"d": b"\x00" * 300}},
        Array([Symbol("x"), Symbol("yz")]),
        Described(ULong(0x70), [UInt(5), "text", "\u00e9" * 200]),
        Array([[1], [2, 3]]),
    ]
)


@given(st.lists(st.tuples(st.integers(0, len(_SEED) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_mutated_bytes_are_a_value_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(_SEED)
    for at, byte in changes:
        data[at] = byte
    _is_value_or_refused(bytes(data))


@given(st.integers(0, len(_SEED) - 1))
def test_bytes_that_are_cut_short_are_refused(size: int) -> None:
    with pytest.raises(AmqpDecodeError):
        decode(_SEED[:size])
    with pytest.raises(AmqpDecodeError):
        skip(_SEED[:size])


_WRAPS: tuple[Callable[[AmqpValue], bytes], ...] = (
    lambda inner: encode([inner]),
    lambda inner: encode({"a": inner}),
    lambda inner: encode(Described(ULong(1), inner)),
    lambda inner: encode(Array([inner])),
)


@pytest.mark.parametrize("wrap", _WRAPS, ids=["list", "map", "described", "array"])
def test_values_are_nested_up_to_64_deep(wrap: Callable[[AmqpValue], bytes]) -> None:
    value: AmqpValue = []
    for _ in range(63):
        value = [value]
    assert decode_exactly(encode(value)) == value
    assert decode_exactly(wrap(value[0] if isinstance(value, list) else None))
    with pytest.raises(AmqpDecodeError, match="nested deeper than 64"):
        decode_exactly(wrap([value]))


@pytest.mark.parametrize(
    "beside",
    [encode([1]), encode({"a": 1}), encode(Described(ULong(1), 1)), encode(Array([1])), b"\xe0\x01\x00"],
    ids=["list", "map", "described", "array", "empty array"],
)
def test_values_beside_each_other_count_as_one_level(beside: bytes) -> None:
    deep: AmqpValue = []
    for _ in range(63):
        deep = [deep]
    assert len(decode_all(_wide(0xD0, 101, beside * 100 + encode(deep)))) == 1
    with pytest.raises(AmqpDecodeError, match="nested deeper than 64"):
        decode_all(_wide(0xD0, 101, beside * 100 + encode([deep])))


def test_too_many_items_at_the_deepest_level_are_named_so() -> None:
    deep: AmqpValue = [1, 2]
    for _ in range(63):
        deep = [deep]
    assert decode(encode(deep), items=65)[0] == deep
    with pytest.raises(AmqpDecodeError, match="more elements than are read"):
        decode(encode(deep), items=64)


def test_an_array_may_claim_64_elements_of_no_width() -> None:
    head = b"\xf0" + (5).to_bytes(4)
    assert decode_exactly(head + (64).to_bytes(4) + b"\x40") == [None] * 64
    for start in (0, 500):
        with pytest.raises(AmqpDecodeError, match="more elements"):
            decode(b"\x40" * start + head + (65).to_bytes(4) + b"\x40", start)
    assert decode_exactly(encode(Array([1] * 300))) == [1] * 300


def test_any_buffer_is_read() -> None:
    assert decode(memoryview(b"\x54\x07\x40")) == (7, 2)
    assert decode(memoryview(encode("a"))) == ("a", 3)


def test_short_symbols_are_kept_in_memory_once() -> None:
    short = encode(Symbol("k" * 63))
    assert decode(short)[0] is decode(short)[0]
    for size in (64, 65):
        long = encode(Symbol("k" * size))
        assert decode(long)[0] is not decode(long)[0]
        assert decode(long)[0] == "k" * size


@pytest.mark.parametrize(
    "encoded",
    ["40", "5007", "600007", "7000000007", "8000000000000000ff", "98" + 16 * "07"]
    + [f"{code:x}0207ff" for code in (0xA0, 0xC0, 0xE0)]
    + [f"{code:x}0000000207ff" for code in (0xB0, 0xD0, 0xF0)],
)
def test_skip_ends_behind_a_value_of_each_width(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert [skip(data), skip(b"\x40" + data + b"\x40", 1)] == [len(data), 1 + len(data)]


@pytest.mark.parametrize("encoded", ["50", "60ff", "7000", "8000", "9000", "a0", "a003ff", "b0000000", "00a1", "c0"])
def test_skip_refuses_a_value_that_is_cut_short(encoded: str) -> None:
    with pytest.raises(AmqpDecodeError, match=r"at byte \d is cut short"):
        skip(bytes.fromhex(encoded))


def _wide(code: int, count: int, content: bytes) -> bytes:
    return bytes((code,)) + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


def test_a_value_holds_65_536_items_at_most() -> None:
    assert len(decode_exactly(_wide(0xD0, 65_536, b"\x40" * 65_536))) == 65_536  # pyright: ignore[reportArgumentType]
    small = bytes((0xE0, 2, 64, 0x45))  # an array that claims 64 empty lists
    most = _wide(0xD0, 1_008, small * 1_008)
    assert len(decode_exactly(most)) == 1_008  # pyright: ignore[reportArgumentType]
    for too_many in (_wide(0xD0, 65_537, b"\x40" * 65_537), _wide(0xD0, 1_009, small * 1_009)):
        with pytest.raises(AmqpDecodeError, match="more elements than are read"):
            decode(too_many)
    assert len(decode_all(most)) == 1
    with pytest.raises(AmqpDecodeError, match="more elements than are read"):
        decode_all(most * 2)  # values that follow each other hold as much as one


@pytest.mark.parametrize("key", [b"\x98" + bytes(12), b"\x70", b"\x81" + bytes(4), b"\x82" + bytes(4)])
def test_keys_whose_hashes_may_collide_are_few(key: bytes) -> None:
    def a_map(count: int) -> bytes:
        return _wide(0xD1, 2 * count, b"".join(key + number.to_bytes(4) + b"\x40" for number in range(count)))

    assert len(decode_exactly(a_map(1_000))) == 1_000  # pyright: ignore[reportArgumentType]
    with pytest.raises(AmqpDecodeError, match=r"more than 1,000 keys that are not texts"):
        decode(a_map(1_001))
    assert len(decode_exactly(_wide(0xD0, 2, a_map(700) * 2))) == 2  # pyright: ignore[reportArgumentType]
    with pytest.raises(AmqpDecodeError, match=r"more than 1,000 keys that are not texts"):
        decode(_wide(0xD0, 3, a_map(700) * 3))
    with pytest.raises(AmqpDecodeError, match=r"more than 1,000 keys that are not texts"):
        decode(_wide(0xD0, 2, a_map(980) + a_map(199)))  # 980² + 199² is one more than 1,000²


def test_texts_as_keys_may_be_many() -> None:
    keys = b"".join(encode(f"k{number}") + b"\x40" for number in range(30_000))
    assert len(decode_exactly(_wide(0xD1, 60_000, keys))) == 30_000  # pyright: ignore[reportArgumentType]
