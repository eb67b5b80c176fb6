"""Messages as files: nothing is lost, nothing acts, nothing is overwritten, and others cannot read it."""

from __future__ import annotations

import csv
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbnotebook import read_messages
from sbnotebook.analysis.frames import messages_from
from sbnotebook.client.messages import Messages
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.testing.strategies import PRIMITIVES
from sbnotebook.testing.strategies import peeked_messages as any_peeked
from tests.chances import rounds
from tests.comparison import differences

LOSSLESS = [".parquet", ".jsonl"]
ALL = [*LOSSLESS, ".csv"]
DLQ = EntityAddress.parse("orders/$dlq")
FORMULAS = ["=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", '"=1', "＝1", "=cmd|' /C calc'!A0"]  # noqa: RUF001
HIDDEN = ["a;=1+1", 'a;"=1+1', "a|=1", "a\n=1+1", "a\t @x", 'a";-2+3', "a\r\n+1"]


def peeked(number: int = 1, **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=DLQ, sequence_number=number, **fields)


TWO = Messages([peeked(1, subject="a", body=b"one"), peeked(2, subject="b", body=b"\xff\x00")])


def assert_same(found: Sequence[PeekedMessage], expected: Sequence[PeekedMessage]) -> None:
    """The same messages as they were peeked, and as they would be sent."""
    service = ("entity", "sequence_number", "enqueued_time", "expires_at", "delivery_count", "state")
    for one, other in zip(found, expected, strict=True):
        assert differences(one, other) == {}
        assert [getattr(one, name) for name in service] == [getattr(other, name) for name in service]
    sent = zip(messages_from(found), messages_from(expected), strict=True)
    assert [differences(*pair) for pair in sent] == [{}] * len(expected)


@pytest.mark.parametrize("ending", LOSSLESS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(any_peeked(), max_size=3))
def test_export_is_lossless(tmp_path: Path, ending: str, held: list[PeekedMessage]) -> None:
    path = Messages(held).export(tmp_path / f"messages{ending}", overwrite=True)
    assert_same(read_messages(path), held)


@pytest.mark.parametrize("ending", LOSSLESS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=rounds(5, 30))
@given(st.fixed_dictionaries(dict(PRIMITIVES)))
def test_export_keeps_every_amqp_type(tmp_path: Path, ending: str, properties: dict[str, Any]) -> None:
    message = peeked(2**63 - 1, application_properties=properties, enqueued_time=datetime(2026, 1, 2, 3, tzinfo=UTC))
    path = Messages([message]).export(tmp_path / f"types{ending}", overwrite=True)
    assert_same(read_messages(path), [message])


@pytest.mark.parametrize("ending", LOSSLESS)
def test_hostile_messages_come_back_as_they_are(tmp_path: Path, ending: str) -> None:
    texts = [*FORMULAS, *HIDDEN, "<script>", "\x1b[2J", "\u202e\u2028\x85\0", "a\nb", '","', "é🚚", "9" * 5_000]
    hostile = [
        peeked(number, subject=text, body=text.encode(), application_properties={text: text, "DeadLetterReason": text})
        for number, text in enumerate(texts, start=1)
    ]
    hostile += [peeked(100, body=b"[" * 20_000), peeked(101, body=b"x" * 262_144), peeked(102, body=b"\xc3\x28")]
    path = Messages(hostile).export(tmp_path / f"hostile{ending}")
    assert_same(read_messages(path), hostile)
    if ending == ".jsonl":
        assert len(path.read_text("ascii").splitlines()) == len(hostile), "no character in a message ends a line"
        assert not any(character < " " for character in path.read_text("ascii").replace("\n", ""))


@pytest.mark.parametrize("ending", ALL)
def test_export_of_no_messages_is_a_file(tmp_path: Path, ending: str) -> None:
    path = Messages().export(tmp_path / f"none{ending}")
    assert path.exists()
    if ending != ".csv":
        assert len(read_messages(path)) == 0


# ------------------------------------------------------------------ CSV


def cells_of(path: Path, separator: str = ",") -> Iterator[str]:
    """The cells that a spreadsheet with this separator sees, without what it takes for quotes."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.reader(file, delimiter=separator):
            yield from row


def acts(cell: str) -> bool:
    return cell.strip(" \"'\t\r\n")[:1] in tuple("=+-@＝＋－＠") and not cell.startswith("'")  # noqa: RUF001


@pytest.mark.parametrize("text", FORMULAS + HIDDEN)
def test_no_cell_acts_as_a_formula(tmp_path: Path, text: str) -> None:
    assert any(acts(cell) for separator in ",;|\t" for cell in text.split(separator) + text.splitlines()), "a control"
    properties = {"DeadLetterReason": text, text: text}
    message = peeked(subject=text, message_id=text, body=text.encode(), application_properties=properties)
    path = Messages([message]).export(tmp_path / "messages.csv")
    for separator in ",;|\t":
        # Quotes are not where a reader with another separator looks for them: it may cut anywhere.
        torn = path.read_text("utf-8-sig").split(separator) if separator != "," else []
        for cell in (*cells_of(path, separator), *torn):
            assert not any(acts(line) for line in cell.strip().strip('"').splitlines()), (separator, cell)


def test_csv_has_the_texts_and_no_bytes(tmp_path: Path) -> None:
    path = TWO.export(tmp_path / "messages.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["subject"], first["body_text"], first["sequence_number"]) == ("a", "one", "1")
    assert second["body_text"] == "(2 bytes that are not text)"
    assert not {"body", "extras"} & first.keys()


def test_csv_cell_is_cut_and_shows_unprintable_characters(tmp_path: Path) -> None:
    message = peeked(body=b"x" * 40_000, subject="\x1b[2J\u202e")
    with Messages([message]).export(tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    long, subject = row["body_text"], row["subject"]
    assert len(long) < 32_767
    assert long.endswith("… (40,000 characters)")
    assert subject == "·[2J·"


@pytest.mark.parametrize("text", [";=" * 16_000, "=" * 32_000, ";=" * 40_000])
def test_csv_cell_is_cut_behind_its_apostrophes(tmp_path: Path, text: str) -> None:
    path = Messages([peeked(body=text.encode())]).export(tmp_path / "a.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert len(row["body_text"]) < 32_767
    assert row["body_text"].endswith(f"… ({len(text):,} characters)")


# ------------------------------------------------------------------ the file


@pytest.mark.parametrize("ending", ALL)
def test_only_its_owner_can_read_it_and_nothing_else_is_left(tmp_path: Path, ending: str) -> None:
    before = os.umask(0)
    try:
        path = TWO.export(tmp_path / f"messages{ending}")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ALL)
def test_export_replaces_a_file_only_with_overwrite(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"messages{ending}"
    path.write_text("mine")
    with pytest.raises(ConfigurationError, match="exists: choose another name, or say overwrite=True"):
        TWO.export(path)
    assert path.read_text() == "mine"
    TWO.export(path, overwrite=True)
    assert path.stat().st_size > 4
    assert list(tmp_path.iterdir()) == [path]


def test_export_follows_no_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(target)
    with pytest.raises(ConfigurationError, match="exists"):
        TWO.export(link)
    TWO.export(link, overwrite=True)
    assert not target.exists()


def test_export_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    path = TWO.export(tmp_path / "messages.jsonl")
    assert len(read_messages(path)) == 2
    with pytest.raises(ConfigurationError, match="exists"):
        TWO.export(path)


def test_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigurationError, match=r"cannot be written \(No space left on device\): choose another"):
        TWO.export(tmp_path / "messages.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ALL)
def test_export_refuses_a_folder_in_its_place(tmp_path: Path, ending: str) -> None:
    place = tmp_path / f"folder{ending}"
    place.mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot be written \(Is a directory\): choose another name"):
        TWO.export(place, overwrite=True)
    assert list(tmp_path.iterdir()) == [place]


def test_export_takes_any_name_of_the_file_system(tmp_path: Path) -> None:
    assert len(read_messages(TWO.export(tmp_path / f"{'n' * 249}.jsonl"))) == 2
    with pytest.raises(ConfigurationError, match=r"cannot be written \(File name too long\): choose another name"):
        TWO.export(tmp_path / f"{'n' * 250}.jsonl")


def test_export_refusal_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"not written as '.xlsx': use .parquet or .jsonl.*or .csv"):
        TWO.export(tmp_path / "messages.xlsx")
    with pytest.raises(ConfigurationError, match=r"There is no folder .*make it first"):
        TWO.export(tmp_path / "new" / "messages.csv")


# ------------------------------------------------------------------ files of others

ROW = {"entity": "orders", "sequence_number": 7}
BAD_LINES = {
    "no JSON": "{",
    "no object": "[]",
    "no number": json.dumps({"entity": "orders"}),
    "no entity": json.dumps({"sequence_number": 1, "entity": None}),
    "text for a number": json.dumps(ROW | {"delivery_count": "3"}),
    "truth for a number": json.dumps(ROW | {"delivery_count": True}),
    "number for a text": json.dumps(ROW | {"subject": 3}),
    "text for a map": json.dumps(ROW | {"application_properties": "a"}),
    "map for a text": json.dumps(ROW | {"subject": {}}),
    "no base64": json.dumps(ROW | {"body": "?"}),
    "late time": json.dumps(ROW | {"enqueued_time": "9999-12-31T23:59:59-10:00"}),
    "early time": json.dumps(ROW | {"enqueued_time": "0001-01-01T00:00:00+10:00"}),
    "no time": json.dumps(ROW | {"enqueued_time": "yesterday"}),
    "deep": "[" * 100_000,
    "no UTF-8": "\udcff",
}
TOO_MUCH = {
    "too large": json.dumps(ROW | {"delivery_count": 2**40}),
    "half a character": json.dumps(ROW | {"subject": "\ud83d"}),
    "a map of others": json.dumps(ROW | {"application_properties": {"a": 1}}),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_read_names_the_line_that_is_no_message(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n\n{BAD_LINES[kind]}\n", errors="surrogateescape")
    with pytest.raises(ConfigurationError, match="Line 3 is not a message"):
        read_messages(path)


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_read_refuses_values_of_the_wrong_type(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text(f"{TOO_MUCH[kind]}\n")
    with pytest.raises(ConfigurationError, match="does not hold messages"):
        read_messages(path)


def test_read_accepts_a_line_with_fewer_columns(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text(json.dumps(ROW | {"subject": "a", "unknown": 1}))
    (message,) = read_messages(path)
    assert (message.sequence_number, message.subject, message.body) == (7, "a", b"")


def test_read_accepts_the_table_of_another_tool(tmp_path: Path) -> None:
    path = tmp_path / "messages.parquet"
    pq.write_table(pa.table({"sequence_number": pa.array([7], pa.int32()), "entity": ["orders"], "x": [1]}), path)  # pyright: ignore[reportUnknownMemberType]
    (message,) = read_messages(path)
    assert (message.sequence_number, message.entity) == (7, EntityAddress("orders"))


@pytest.mark.parametrize("ending", LOSSLESS)
def test_read_says_why_a_file_cannot_be_read(tmp_path: Path, ending: str) -> None:
    place = tmp_path / f"messages{ending}"
    with pytest.raises(ConfigurationError, match="cannot be read: No such file or directory"):
        read_messages(place)
    place.mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        read_messages(place)


def test_read_refuses_a_damaged_file(tmp_path: Path) -> None:
    path = TWO.export(tmp_path / "messages.parquet")
    data = bytearray(path.read_bytes())
    data[-40:-20] = b"\xff" * 20
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match="does not hold messages"):
        read_messages(path)


def test_read_takes_times_as_utc(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    times = ["2026-01-02T03:00:00", "2026-01-02T03:00:00Z", "2026-01-02T05:00:00+02:00"]
    path.write_text("\n".join(json.dumps(ROW | {"enqueued_time": time}) for time in times))
    assert {message.enqueued_time for message in read_messages(path)} == {datetime(2026, 1, 2, 3, tzinfo=UTC)}


def test_files_that_hold_no_messages_are_refused(tmp_path: Path) -> None:
    text, other = tmp_path / "text.parquet", tmp_path / "other.parquet"
    text.write_text("not Parquet at all")
    pq.write_table(pa.table({"a": [1]}), other)  # pyright: ignore[reportUnknownMemberType]
    with pytest.raises(ConfigurationError, match="does not hold messages"):
        read_messages(text)
    with pytest.raises(ConfigurationError, match="no column entity"):
        read_messages(other)
    with pytest.raises(ConfigurationError, match=r"CSV is for spreadsheets and loses types; use .parquet or .jsonl"):
        read_messages(TWO.export(tmp_path / "messages.csv"))
    with pytest.raises(ConfigurationError, match="ending is unknown"):
        read_messages(tempfile.gettempdir())


@pytest.mark.parametrize("character", ["x", "\0", "\U0001f600", "\\", '"', "é"])
@pytest.mark.parametrize("count", [65_536, 65_537, 200_001])
def test_a_long_text_is_written_as_it_is(tmp_path: Path, character: str, count: int) -> None:
    text = character * count
    messages = Messages([PeekedMessage(entity=EntityAddress("orders"), sequence_number=1, body=text.encode())])
    read = read_messages(messages.export(tmp_path / "long.jsonl"))
    assert read.to_arrow().column("body_text").to_pylist() == [text]
    assert read.to_arrow().equals(messages.to_arrow())
