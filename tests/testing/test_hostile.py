"""The hostile messages, and what the Python side makes of them: they travel, and nothing acts or is lost."""

from __future__ import annotations

import csv
import unicodedata
from pathlib import Path

import pytest

from sbnotebook import Namespace, connect, read_messages
from sbnotebook.client.messages import Messages
from sbnotebook.emulator import running
from sbnotebook.testing.hostile import hostile_bodies, hostile_messages, hostile_texts

MESSAGES = hostile_messages()
SUBJECTS = [message.subject for message in MESSAGES]
LIMIT = 256 * 1024
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d")


@pytest.fixture(scope="module")
def letters() -> Messages:
    with running(queues=["orders"]) as emulator, connect(emulator.connection_string) as namespace:
        return _dead_lettered(namespace)


def _dead_lettered(namespace: Namespace) -> Messages:
    orders = namespace.entity("orders")
    orders.send(MESSAGES).raise_for_failures()
    texts = list(hostile_texts().values())
    with orders.lock(len(MESSAGES)) as batch:
        for place, message in enumerate(list(batch.messages)):
            text = texts[place % len(texts)]
            batch.dead_letter([message], reason=text, description=text).raise_for_failures()
    return namespace.entity("orders/$dlq").peek(show_progress=False)


def test_any_namespace_takes_them() -> None:
    assert all(len(body) <= LIMIT for body in hostile_bodies().values())
    assert len(set(SUBJECTS)) == len(SUBJECTS)


def test_they_come_back_as_they_were_sent(letters: Messages) -> None:
    found = {message.subject: message for message in letters}
    assert [found[message.subject].body for message in MESSAGES] == [message.body for message in MESSAGES]


def test_a_terminal_sees_no_character_that_it_acts_on(letters: Messages) -> None:
    shown = "".join([repr(letters), repr(letters.groups()), *map(repr, letters)])
    assert {one for one in shown if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")} == {"\n"}


def test_exports_are_the_same_when_read_and_hold_no_formula(letters: Messages, tmp_path: Path) -> None:
    for ending in ("parquet", "jsonl"):
        read = read_messages(letters.export(tmp_path / f"letters.{ending}"))
        assert read.to_arrow().equals(letters.to_arrow())
    with letters.export(tmp_path / "letters.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert "'" + hostile_texts()["formula"] in cells
    assert not [cell for cell in cells if cell.lstrip(" \"'\n").startswith(FORMULA) and not cell.startswith("'")]


def test_expressions_find_what_is_hostile(letters: Messages) -> None:
    sql = hostile_texts()["SQL"]
    assert {message.subject for message in letters.where(f"subject = '{sql.replace(chr(39), chr(39) * 2)}'")} == {sql}
    assert len(letters.where("application_properties['__proto__'] is not null")) == 1
    assert len(letters.where("try_cast(body_json->>'$.a' as double) > 1")) <= 1
