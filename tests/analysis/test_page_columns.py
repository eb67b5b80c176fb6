"""Columns straight from bytes: the same as from decoded messages, also for damaged and hostile bytes."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbnotebook.amqp import Byte, Int, Long, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from sbnotebook.amqp.sections import (
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    encode_section,
    split,
)
from sbnotebook.analysis import page_columns
from sbnotebook.analysis.frames import arrow_schema, to_arrow
from sbnotebook.analysis.page_columns import PageColumns
from sbnotebook.model import EntityAddress, Message, MessageState
from sbnotebook.model.budget import Allowance
from sbnotebook.model.schema import COLUMNS
from sbnotebook.settlement import Page, PeekCursor, peeked_from_payload
from sbnotebook.settlement.wire import decoding
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.testing.hostile import hostile_messages
from sbnotebook.testing.strategies import messages
from tests.chances import rounds

EXAMPLES: Final = rounds(20, 200)
ENTITY: Final = EntityAddress("orders")
ENQUEUED: Final = Timestamp.from_datetime(datetime(2013, 1, 1, 5, 15, tzinfo=UTC))
ALLOWED: Final = 1 << 20
VARIED: Final[dict[type, Callable[[random.Random], Any]]] = {
    str: lambda chance: "".join(chance.choices("aä€\U0001f600 <", k=chance.choice((0, 1, 5, 300)))),
    bool: lambda chance: chance.random() < 0.5,
    float: lambda chance: chance.choice((0.1, -0.0, 1e300, float("inf"), float("nan"))),
    UByte: lambda chance: UByte(chance.randrange(2**8)),
    Byte: lambda chance: Byte(chance.randrange(-(2**7), 2**7)),
    UShort: lambda chance: UShort(chance.randrange(2**16)),
    Short: lambda chance: Short(chance.randrange(-(2**15), 2**15)),
    UInt: lambda chance: UInt(chance.choice((0, 1, 255, 256, 2**32 - 1))),
    Int: lambda chance: Int(chance.choice((0, -1, 127, -128, 128, -(2**31)))),
    ULong: lambda chance: ULong(chance.choice((0, 1, 255, 256, 2**64 - 1))),
    Long: lambda chance: Long(chance.choice((0, -1, 127, -128, 2**63 - 1, -(2**63)))),
    Timestamp: lambda chance: Timestamp(chance.choice((0, -1, 2**47, -(2**62), ENQUEUED))),
    UUID: lambda chance: UUID(int=chance.getrandbits(128)),
}
"""Other values of the types that differ from message to message."""
ANNOTATIONS: Final[dict[str, Callable[[random.Random, int], Any]]] = {
    "x-opt-sequence-number": lambda chance, row: Long(row if chance.random() < 0.98 else 0),
    "x-opt-enqueued-time": lambda chance, _: Timestamp(chance.choice((0, *[ENQUEUED] * 9, 2**60, -(2**60)))),
    "x-opt-enqueue-sequence-number": lambda _, row: Long(row),
    "x-opt-partition-key": lambda chance, _: chance.choice(("a", "bb", "", "€" * 100)),
    "x-opt-scheduled-enqueue-time": lambda chance, _: Timestamp(ENQUEUED + chance.choice((-1, 0, 1))),
    "x-opt-locked-until": lambda _, row: Timestamp(row),
    "x-opt-message-state": lambda chance, _: Int(chance.choice((0, 0, 0, 1, 2))),
    "x-opt-deadletter-source": lambda chance, _: chance.choice(("invoices", "bills")),
    "x-mine": lambda _, row: row % 2,
}
SIZED: Final = frozenset(b"\xa0\xa1\xa3\xb0\xb1\xb3\xc0\xc1\xd0\xd1")
"""Constructors with a size behind them."""
PACKED: Final = (gzip.compress(b'{"a": 1}', mtime=0), gzip.compress(b"x" * 5_000, mtime=0))
HEADERS: Final[tuple[list[Any], ...]] = (
    [None, None, UInt(60_000), None, UInt(0)],
    [None, None, UInt(2**32 - 1), None, UInt(300)],
    [True, UByte(4), None, False, UInt(2**32 - 1)],
    [],
)


@pytest.fixture(autouse=True)
def decoding_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    # A template would change which of two faults of a damaged message is named.
    monkeypatch.setattr(decoding, "_learn", lambda _payload, _part: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    monkeypatch.setattr(decoding, "_templates", ())


def page_of(payloads: Sequence[bytes], first: int = 1) -> Page:
    return Page(ENTITY, first, list(payloads))


def by_bytes(page: Page, reader: PageColumns | None = None, unpacking: Allowance | None = None) -> pa.Table:
    made = (reader or PageColumns(COLUMNS, arrow_schema())).taken(page, PeekCursor(), unpacking or Allowance(ALLOWED))
    return pa.Table.from_batches([made])


def assert_same(page: Page, reader: PageColumns | None = None) -> None:
    fast, slow = Allowance(ALLOWED), Allowance(ALLOWED)
    made, decoded = by_bytes(page, reader, fast), to_arrow(page.messages(), slow)
    for name in decoded.column_names:
        assert made[name].to_pylist() == decoded[name].to_pylist(), name
    assert made.schema.equals(decoded.schema)
    assert fast.left == slow.left, "packed bodies take the same"


@pytest.fixture(autouse=True)
def shapes_of_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_columns, "_FEW", 2)
    monkeypatch.setattr(page_columns, "_MOST_MISSES", 10)


def varied(message: Message, chance: random.Random) -> Message:
    """Return a message of the same shape, more or less."""
    properties = {
        name: VARIED[type(value)](chance) if type(value) in VARIED else value
        for name, value in message.application_properties.items()
    }
    texts = {
        name: VARIED[str](chance)
        for name in ("message_id", "subject", "to", "session_id", "reply_to")
        if getattr(message, name) is not None or chance.random() < 0.5
    }
    extras = dict(message.extras)
    if chance.random() < 0.9:
        extras |= {"creation_time": Timestamp(chance.randrange(2**40)), "absolute_expiry_time": Timestamp(2**45)}
    body = chance.choice((b"", b"<string", b'{"a": 1}', b"@\x06string", b"\xff", b"\xef\xbb\xbfa", b"x" * 300, *PACKED))
    is_plain = message.body_type.value == "data" and "data_sections" not in extras
    changes: dict[str, Any] = {"body": body} if is_plain and chance.random() < 0.8 else {}
    return message.with_changes(**texts, application_properties=properties, extras=extras, **changes)


def as_peeked(message: Message, names: Sequence[str], header: list[Any], chance: random.Random, row: int) -> bytes:
    """Return the bytes of a message with what the service adds."""
    annotations = {Symbol(name): ANNOTATIONS[name](chance, row) for name in names}
    start = encode_section(HEADER, header) if header else b""
    start += encode_section(DELIVERY_ANNOTATIONS, {Symbol("x-opt-lock-token"): UUID(int=row)}) if row % 2 else b""
    start += encode_section(MESSAGE_ANNOTATIONS, annotations)
    return start + senders_part(message)


def senders_part(message: Message) -> bytes:
    """Return the sections of a message that the service leaves as they are."""
    payload = payload_of(message)
    return b"".join(payload[part.start : part.end] for part in split(payload) if part.code >= PROPERTIES)


def damaged(payload: bytes, chance: random.Random) -> bytes:
    """Return bytes with a few faults, most of which change a length, a type, or a text."""
    changed = bytearray(payload)
    for _ in range(chance.choice((1, 1, 2, 5))):
        sized = [at + 1 for at, code in enumerate(changed[:-1]) if code in SIZED]
        at = chance.choice(sized) if sized and chance.random() < 0.5 else chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            changed[at] = (changed[at] + chance.choice((-1, 1))) % 256
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.choice((1, 2)))
        else:
            del changed[at : at + chance.choice((1, 1, 8))]
    return bytes(changed) or b"\0"


@st.composite
def pages(draw: st.DrawFn) -> list[Page]:
    """Generate pages of an entity with a few kinds of messages, some of them damaged."""
    chance = random.Random(draw(st.integers(0, 2**32)))  # noqa: S311 (nothing secret)
    kinds = draw(st.lists(messages(), min_size=1, max_size=3))
    kinds = [*(kind.with_changes(content_encoding=None) for kind in kinds), *kinds[: draw(st.integers(0, 1))]]
    names = draw(st.lists(st.sampled_from(list(ANNOTATIONS)), max_size=6, unique=True))
    names = ["x-opt-sequence-number", "x-opt-enqueued-time", *names][: draw(st.integers(1, 8))]
    names = list(dict.fromkeys(names))
    harm = draw(st.sampled_from((0.0, 0.0, 0.1, 0.9)))
    made: list[Page] = []
    for _ in range(2):
        rows = [varied(chance.choice(kinds), chance) for _ in range(chance.choice((13, 40)))]
        header = chance.choice(HEADERS)
        payloads = [as_peeked(message, names, header, chance, row) for row, message in enumerate(rows, 1)]
        made.append(page_of([damaged(each, chance) if chance.random() < harm else each for each in payloads]))
    return made


@settings(max_examples=EXAMPLES)
@given(pages())
def test_columns_by_bytes_are_those_of_decoded_messages(made: list[Page]) -> None:
    reader = PageColumns(COLUMNS, arrow_schema())
    for page in made:
        assert_same(page, reader)


def letter(row: int, **fields: Any) -> bytes:
    """Return a dead letter; all of them have one shape."""
    properties = {"DeadLetterReason": f"Late {row}", "attempt": row}
    message = Message(body=b"x" * row, message_id=f"m{row}", application_properties=properties, **fields)
    annotations: dict[Any, Any] = {Symbol("x-opt-sequence-number"): Long(row), Symbol("x-opt-enqueued-time"): ENQUEUED}
    start = encode_section(HEADER, [None, None, None, None, UInt(row)])
    return start + encode_section(MESSAGE_ANNOTATIONS, annotations) + senders_part(message)


def letters(count: int, **fields: Any) -> list[bytes]:
    """Return dead letters numbered from 1 on."""
    return [letter(row, **fields) for row in range(1, count + 1)]


def decoded_rows(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list to which each message that is decoded by itself is added."""
    rows: list[bytes] = []
    decode = page_columns.peeked_from_payload

    def noted(payload: bytes, *rest: Any) -> Any:
        rows.append(payload)
        return decode(payload, *rest)

    monkeypatch.setattr(page_columns, "peeked_from_payload", noted)
    return rows


def test_hostile_messages_stay_where_they_are_among_others() -> None:
    chance = random.Random(0)  # noqa: S311 (nothing secret)
    names = ("x-opt-sequence-number", "x-opt-enqueued-time")
    hostile = [as_peeked(each, names, [], chance, row) for row, each in enumerate(hostile_messages(), 1)]
    mixed = [payload for pair in zip(hostile, letters(len(hostile)), strict=True) for payload in pair]
    assert_same(page_of([*mixed, b"", b"\0", *mixed]))


@pytest.mark.parametrize("wanted", [("subject",), ("body",), ("body_text", "state"), ("expires_at", "extras")])
def test_columns_of_a_part_are_the_same(wanted: tuple[str, ...]) -> None:
    columns = [column for column in COLUMNS if column.name in wanted]
    whole: Any = arrow_schema()
    schema = pa.schema([field for field in whole if field.name in wanted])
    page = page_of([*letters(40), *letters(40, content_encoding="gzip"), letters(1)[0][:-1]])
    made = PageColumns(columns, schema).taken(page, PeekCursor(), Allowance(ALLOWED))
    assert made.to_pylist() == to_arrow(page.messages()).select(schema.names).to_pylist()


def test_cursor_chooses_among_columns() -> None:
    reader, cursor = PageColumns(COLUMNS, arrow_schema()), PeekCursor(3, 60, 20, MessageState.ACTIVE)
    taken = reader.taken(page_of(letters(100)[2:], 3), cursor, Allowance(ALLOWED))
    assert taken.column("sequence_number").to_pylist() == [*range(3, 23)]
    assert cursor.max_messages == 0


def test_message_without_a_number_gets_one_of_its_place() -> None:
    without = encode_section(PROPERTIES, ["m"]) + encode_section(DATA, b"")
    page = page_of([*letters(30)[:20], without, *letters(30)[21:]])
    assert_same(page)
    assert by_bytes(page)["sequence_number"].to_pylist() == [*range(1, 31)]


def test_packed_bodies_share_the_allowance_of_the_table() -> None:
    bomb = gzip.compress(b"\0" * 3_000_000)
    chance, names = random.Random(0), ("x-opt-sequence-number",)  # noqa: S311 (nothing secret)
    packed = [as_peeked(Message(body=bomb, content_encoding="gzip"), names, [], chance, row) for row in range(1, 41)]
    assert_same(page_of([*packed, *letters(40)]))


def test_no_damaged_byte_is_taken_for_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, payload = PageColumns(COLUMNS, arrow_schema()), letter(7, subject="late", reply_to="desk")
    assert_same(page_of(letters(40, subject="late", reply_to="desk")), reader)
    decoded = decoded_rows(monkeypatch)
    for change in (1, 255, 128):
        rows = [bytearray(payload) for _ in payload]
        for at, row in enumerate(rows):
            row[at] = (row[at] + change) % 256
        # One message without a number would make sbnotebook decode the whole page.
        numbered = [bytes(row) for row in rows if peeked_from_payload(bytes(row), ENTITY, ()).sequence_number]
        decoded.clear()
        assert_same(page_of(numbered), reader)
        assert len(decoded) < len(numbered), "where texts were damaged, the shape is the same"
    assert_same(page_of([payload + payload[:at] for at in range(len(payload))]), reader)
