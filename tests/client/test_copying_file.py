"""A copy as one file: lossless, read without its namespace, and refused in a sentence when it is something else."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sbnotebook as sb
from sbnotebook.amqp import Symbol, ULong
from sbnotebook.client import Namespace, copying, read_copy
from sbnotebook.emulator import RunningEmulator, SubscriptionOptions
from sbnotebook.emulator.entities.rules.rule import Rule, sql_filter
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message, PeekedMessage
from sbnotebook.testing.strategies import messages as any_messages
from tests.chances import rounds
from tests.comparison import differences
from tests.filled_queues import filled_client_queue

Lines = list[Any]


def emulators() -> int:
    """The number of emulators that run in this process."""
    return sum(thread.name == "sbnotebook-emulator" for thread in threading.enumerate())


@pytest.fixture
def saved(namespace: Namespace, tmp_path: Path) -> Path:
    """A copy of three messages in a queue."""
    name = f"saved-{tmp_path.name}"[-60:]
    filled_client_queue(namespace, name, [b'{"email": "ada"}', b"two", b"three"])
    with namespace.copy_to("emulator", name) as copy:
        return copy.save(tmp_path / "orders.sbcopy")


def test_saved_copy_is_read_without_its_namespace(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    shared_emulator.create_topic("archived")
    options = SubscriptionOptions(requires_session=True, max_delivery_count=3)
    rules = [Rule("only", sql_filter("size > @n", {"@n": ULong(3)}))]
    shared_emulator.create_subscription("archived", "some", options, rules=rules)
    sent = [
        Message.of_value({"a": ULong(n)}, session_id="ab"[n % 2], application_properties={"size": ULong(n)})
        for n in range(3, 7)
    ]
    namespace.entity("archived").send(sent).raise_for_failures()
    address = "archived/subscriptions/some"
    with namespace.copy_to("emulator", address) as copy:
        before = copy.entity(address).peek()
        assert len(before) == 3
        path = copy.save(tmp_path / "a copy.sbcopy")
        configuration = copy.asynchronous._copied.configuration  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with sb.read_copy(path) as again:
        after = again.entity(address).peek()
        assert [*after] == [*before] == [*again.messages]
        assert [differences(*pair) for pair in zip(after, before, strict=True)] == [{}] * 3
        assert again.asynchronous._copied.configuration == configuration  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        with again.entity(address).session("a") as session:
            session.receive(9)
            assert session.complete().settled == 2
        assert repr(again).startswith("<NamespaceCopy at ")
        assert again.found_by == "the copy in a copy.sbcopy"
        assert again.save(tmp_path / "again.sbcopy").read_bytes() == path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=rounds(5, 30))
@given(st.lists(any_messages(), min_size=1, max_size=3))
def test_any_message_comes_back_from_a_file(tmp_path: Path, sent: list[Message]) -> None:
    fields = [{name: getattr(each, name) for name in Message.__dataclass_fields__} for each in sent]
    held = [PeekedMessage(entity=sb.EntityAddress("q"), sequence_number=n, **each) for n, each in enumerate(fields, 1)]
    table: Any = copying.to_arrow(held)
    path = copying.write_lines(table, tmp_path / "any.sbcopy", {"sbcopy": 1}, overwrite=True)
    with path.open("rb") as file:
        file.readline()
        found = copying.messages_of_table(copying.table_of_lines(copying._lines(file)))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    assert [differences(*pair) for pair in zip(found, held, strict=True)] == [{}] * len(held)


def test_file_holds_no_masked_value_in_any_form(namespace: Namespace, tmp_path: Path) -> None:
    message = Message(
        body=b'{"email": "ada@example.com"}', correlation_id="ada@example.com",
        extras={"correlation_id": Symbol("ada@example.com")},
    )  # fmt: skip
    filled_client_queue(namespace, "hidden", [message])
    with namespace.copy_to("emulator", "hidden", mask=["$.email", "correlation_id"]) as copy:
        path = copy.save(tmp_path / "hidden.sbcopy")
    text = path.read_text()
    decoded = [part for line in text.splitlines()[1:] for part in _bytes_in(json.loads(line))]
    assert not [each for each in (text.encode(), *decoded) if b"ada@" in each or b"example.com" in each]
    with read_copy(path) as again:
        assert again.masked == {"$.email": 1, "correlation_id": 1}
        assert "Masked: $.email in 1, correlation_id in 1" in repr(again)


def _bytes_in(row: dict[str, Any]) -> list[bytes]:
    import base64

    return [base64.b64decode(row[name]) for name in ("body", "extras") if name in row]


def test_save_refuses_another_ending_a_file_and_a_missing_folder(namespace: Namespace, tmp_path: Path) -> None:
    filled_client_queue(namespace, "to-save", 1)
    with namespace.copy_to("emulator", "to-save") as copy:
        path = copy.save(tmp_path / "once.sbcopy")
        with pytest.raises(ConfigurationError, match="exists"):
            copy.save(path)
        assert copy.save(path, overwrite=True) == path
        with pytest.raises(ConfigurationError, match=r"ends in \.sbcopy, not to 'once.json'"):
            copy.save(tmp_path / "once.json")
        with pytest.raises(ConfigurationError, match="There is no folder"):
            copy.save(tmp_path / "none" / "once.sbcopy")
    assert [each.name for each in tmp_path.iterdir() if each.suffix] == ["once.sbcopy"]


def head(**fields: Any) -> Callable[[Lines], object]:
    return lambda lines: lines[0].update(fields)


def row(**fields: Any) -> Callable[[Lines], object]:
    return lambda lines: lines[1].update(fields)


WRONG: list[tuple[Callable[[Lines], object], str]] = [
    (lambda lines: lines.clear(), "copy.save"),
    (lambda lines: lines.pop(0), "copy.save"),
    (lambda lines: lines.insert(0, []), "copy.save"),
    (head(sbcopy=2), "of another version"),
    (head(tier="gold"), r"its first line is wrong \(ValueError\)"),
    (head(entity=5), "its first line is wrong"),
    (head(entity="a/b/c/d/$x"), "its first line is wrong"),
    (head(entity="elsewhere"), "a message is not of elsewhere"),
    (head(entities={}), "must have UserConfig"),
    (head(entities=[]), "must be an object"),
    (head(entities={"UserConfig": {"Namespaces": [{"Queues": [{}]}]}}), "needs a Name"),
    (head(entities={"UserConfig": {}}), "no queue or subscription"),
    (head(entities={"UserConfig": {"Namespaces": [{}] * 50_001}}), "its first line is too long"),
    (head(masked=[]), "its first line is wrong"),
    (head(masked={"$.a": "<b>"}), "its first line is wrong"),
    (head(masked_whole=None), "its first line is wrong"),
    (lambda lines: lines.insert(1, "text"), "Line 2 is not a message"),
    (lambda lines: lines.append(lines[1]), "the same sequence number"),
    (row(sequence_number=0), "the same sequence number, or one has none"),
    (row(sequence_number=2**70), "too large|too big"),
    (row(sequence_number="7"), "sequence_number is a"),
    (row(delivery_count=-1), "a delivery count is below 0"),
    (row(body="%%%"), "Line 2 is not a message"),
    (row(body_type="pickle"), "body_type"),
    (row(enqueued_time="yesterday"), "Line 2 is not a message"),
    (row(application_property_types={"a": "pickle"}, application_properties={"a": "x"}), "pickle"),
    (row(extras="AAAA"), "extras"),
    (row(entity="../../etc"), "not of|not the name of a queue"),
]


@pytest.mark.parametrize(("change", "why"), WRONG, ids=range(len(WRONG)))
def test_file_of_a_stranger_is_refused_in_a_sentence(saved: Path, change: Callable[[Lines], object], why: str) -> None:
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    change(lines)
    saved.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    before = emulators()
    with pytest.raises(ConfigurationError, match=why) as refusal:
        read_copy(saved)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 600 + len(str(saved))
    assert emulators() == before


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff" * 50, b"[" * 100_000, b'{"sbcopy":' * 2_000, b"PAR1", b"9" * 9_000], ids=range(6)
)
def test_file_of_other_bytes_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other.sbcopy"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match="is not a whole copy"):
        read_copy(path)


def test_place_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.sbcopy cannot be read: No such file"):
        read_copy(tmp_path / "none.sbcopy")
    with pytest.raises(ConfigurationError, match="is not a file"):
        read_copy(tmp_path)
    os.mkfifo(tmp_path / "pipe.sbcopy")
    with pytest.raises(ConfigurationError, match="is not a file"):
        read_copy(tmp_path / "pipe.sbcopy")


@pytest.mark.parametrize(
    ("limit", "most", "why"),
    [
        ("MOST", 2, "more than 2 messages"),
        ("_MOST_LINE", 100, "larger than a copy can be"),
        ("_MOST_VALUES", 3, "more values than a message can have"),
        ("_MOST_HEAD", 100, "first line is too long"),
        ("_MOST_OBJECTS", 3, "first line is too long"),
    ],
)
def test_file_over_a_limit_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, why: str
) -> None:
    monkeypatch.setattr(copying, limit, most)
    with pytest.raises(ConfigurationError, match=why):
        read_copy(saved)


def test_lines_end_at_the_limit_of_all_bytes(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"12345678\n" * 3)
    with path.open("rb") as file, pytest.raises(ConfigurationError, match="larger than a copy can be"):
        list(copying._lines(file, left=20))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    with path.open("rb") as file:
        assert len(list(copying._lines(file, left=27))) == 3  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
