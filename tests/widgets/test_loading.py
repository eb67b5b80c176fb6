from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.messages import Messages
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Message
from sbnotebook.settlement import Connection, Journal
from sbnotebook.widgets.loading import Loaded, Loading


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["orders", "empty"]) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def namespace(emulator: RunningEmulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    journal = Journal(tmp_path_factory.mktemp("journal") / "journal.sqlite")
    with Namespace(Target(Connection(emulator.connection_string), "a test"), journal=journal) as namespace:
        namespace.entity("orders").send(Message(message_id=str(number)) for number in range(1_000))
        yield namespace


class Shown:
    """What a panel would be given."""

    def __init__(self) -> None:
        self.parts: list[list[str | None]] = []
        self.ended: Loaded | str | None = None

    def part(self, messages: Messages) -> None:
        self.parts.append([message.message_id for message in messages])

    def end(self, how: Loaded | str) -> None:
        self.ended = how


def load(namespace: Namespace, entity: str, from_sequence_number: int = 1, max_messages: int | None = None) -> Shown:
    shown = Shown()
    Loading(
        namespace.entity(entity),
        shown.part,
        done=shown.end,
        failed=shown.end,
        from_sequence_number=from_sequence_number,
        max_messages=max_messages,
    ).thread.join(60)
    return shown


def test_all_messages_come_in_parts_that_grow(namespace: Namespace) -> None:
    shown = load(namespace, "orders")
    assert [len(part) for part in shown.parts] == [250, 500, 250]
    assert [message for part in shown.parts for message in part] == [str(number) for number in range(1_000)]
    assert shown.ended == Loaded(1_000, 1_001, is_end=True, is_stopped=False)


def test_as_many_come_as_are_wanted_and_the_rest_afterwards(namespace: Namespace) -> None:
    shown = load(namespace, "orders", max_messages=300)
    assert [len(part) for part in shown.parts] == [250, 50]
    assert isinstance(shown.ended, Loaded)
    assert (shown.ended.is_end, shown.ended.is_stopped) == (False, False)
    more = load(namespace, "orders", from_sequence_number=shown.ended.next_number)
    assert more.parts[0][0] == "300"
    assert isinstance(more.ended, Loaded)
    assert (more.ended.count, more.ended.is_end) == (700, True)


def test_nothing_there_is_the_end(namespace: Namespace) -> None:
    shown = load(namespace, "empty")
    assert (shown.parts, shown.ended) == ([], Loaded(0, 1, is_end=True, is_stopped=False))


def test_it_stops_when_told(namespace: Namespace) -> None:
    shown, is_started = Shown(), threading.Event()
    loadings: list[Loading] = []

    def part(messages: Messages) -> None:
        shown.part(messages)
        is_started.wait(60)
        loadings[0].stop()

    loadings.append(Loading(namespace.entity("orders"), part, done=shown.end, failed=shown.end))
    is_started.set()
    loadings[0].thread.join(60)
    assert [len(part) for part in shown.parts] == [250]
    assert shown.ended == Loaded(250, 251, is_end=False, is_stopped=True)


def test_why_it_could_not_go_on_is_told(namespace: Namespace) -> None:
    shown = load(namespace, "nowhere")
    assert isinstance(shown.ended, str)
    assert "nowhere" in shown.ended
