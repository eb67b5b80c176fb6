from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import Connection, Journal
from sbnotebook.settlement.memory.journal import MAX_NOTE, NamespaceTables

HOST = "shop.servicebus.windows.net"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        yield journal


def test_a_note_is_there_the_next_time(journal: Journal) -> None:
    NamespaceTables(journal, lambda: HOST).write_note("abc", "  price list was empty, see INC-4711\n")
    journal.close()
    assert NamespaceTables(journal, HOST.upper).notes() == {"abc": "price list was empty, see INC-4711"}
    assert NamespaceTables(journal, lambda: "other.servicebus.windows.net").notes() == {}


def test_note_replaces_an_earlier_one_and_empty_removes_it(journal: Journal) -> None:
    notes = NamespaceTables(journal, lambda: HOST)
    notes.write_note("abc", "first")
    notes.write_note("def", "other")
    notes.write_note("abc", "second")
    assert notes.notes() == {"abc": "second", "def": "other"}
    notes.write_note("abc", " ")
    assert notes.notes() == {"def": "other"}


def test_hostile_notes_are_kept_as_they_are(journal: Journal) -> None:
    hostile = "'); DROP TABLE notes; --\x1b <script>é🚚\u202e"
    notes = NamespaceTables(journal, lambda: HOST)
    notes.write_note("'; DROP TABLE notes; --", hostile)
    assert notes.notes() == {"'; DROP TABLE notes; --": hostile}


@pytest.mark.parametrize(
    ("fingerprint", "text"), [("abc", "x" * (MAX_NOTE + 1)), ("f" * 101, "note"), ("abc", "half \ud83d")]
)
def test_what_cannot_be_kept_is_refused(journal: Journal, fingerprint: str, text: str) -> None:
    notes = NamespaceTables(journal, lambda: HOST)
    with pytest.raises(ConfigurationError, match=r"characters at most|half of one"):
        notes.write_note(fingerprint, text)
    assert notes.notes() == {}


def test_resubmits_of_a_cause_are_counted_for_30_days(journal: Journal) -> None:
    notes, letters = NamespaceTables(journal, lambda: HOST), EntityAddress.parse("orders/$dlq")
    notes.add_resubmits(letters, {"a": 10, "b": 1}, NOON)
    NamespaceTables(journal, HOST.upper).add_resubmits(EntityAddress.parse("Orders/$dlq"), {"a": 90}, NOON + DAY)
    notes.add_resubmits(EntityAddress.parse("bills/$dlq"), {"a": 5}, NOON + DAY)
    journal.close()
    assert notes.resubmits(letters) == {"a": (NOON + DAY, 100), "b": (NOON, 1)}
    notes.add_resubmits(letters, {"b": 2}, NOON + 31 * DAY)
    assert notes.resubmits(letters) == {"a": (NOON + DAY, 100), "b": (NOON + 31 * DAY, 2)}


def test_a_namespace_has_its_notes(tmp_path: Path) -> None:
    connection = Connection("Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=YQ==")
    with Namespace(Target(connection, "a test"), journal=Journal(tmp_path / "journal.sqlite")) as namespace:
        namespace.note("abc", "see INC-4711")
        assert namespace.notes() == {"abc": "see INC-4711"}
