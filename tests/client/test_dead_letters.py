from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message
from tests.filled_queues import dead_letter_queue, filled_client_queue
from tests.namespaces import opened


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["empty"], topics={"events": ["audit", "billing"]}) as server:
        yield server


def dead_letter(
    namespace: Namespace, entity: str, count: int, reason: str, description: str = "Order 17 is late"
) -> None:
    with namespace.entity(entity).lock(count) as batch:
        batch.dead_letter(reason=reason, description=description)


def test_dead_letters_have_counts_times_causes_and_growth(emulator: RunningEmulator, tmp_path: Path) -> None:
    with opened(emulator.connection_string, tmp_path) as namespace:
        filled_client_queue(namespace, "orders", 12)
        namespace.entity("events").send([Message(body=b"x")] * 2, show_progress=False)
        dead_letter(namespace, "orders", 6, "Invalid")
        dead_letter(namespace, "orders", 2, "Late")
        dead_letter(namespace, "events/subscriptions/audit", 2, "Bad")

        letters = namespace.dead_letters()

        assert [(str(each.address), each.count, each.growth) for each in letters] == [
            ("orders/$dlq", 8, None),
            ("events/subscriptions/audit/$dlq", 2, None),
        ]
        assert (letters.total, letters.entities) == (10, 4)
        orders = letters[0]
        found = namespace.entity("orders/$dlq").peek()
        assert (orders.oldest, orders.newest) == (found[0].enqueued_time, found[-1].enqueued_time)
        assert [(cause.reason, cause.count) for cause in orders.causes] == [("Invalid", 6), ("Late", 2)]
        assert orders.words == "Invalid: Order <n> is late (6), Late: Order <n> is late (2)"
        assert "the first 250 messages of each queue" in letters.summary

        # The next look tells the growth, also of a queue that is empty now.
        dead_letter(namespace, "orders", 3, "Late")
        namespace.entity("events/subscriptions/audit/$dlq").purge().apply(show_progress=False)
        again = namespace.dead_letters()
        assert [(str(each.address), each.count, each.growth) for each in again] == [
            ("orders/$dlq", 11, 3),
            ("events/subscriptions/audit/$dlq", 0, -2),
        ]
        assert again[0].since == letters.time
        assert again.above(10) == [again[0]]
        assert again.above(11) == []


def test_a_sample_says_so_and_the_newest_is_found(emulator: RunningEmulator, tmp_path: Path) -> None:
    with opened(emulator.connection_string, tmp_path) as namespace:
        orders = dead_letter_queue(namespace, "orders", 60, reason="Late", description="Order 17 is late")
        assert orders.purge(where="sequence_number % 7 = 0").apply(show_progress=False).settled == 8

        (queue,) = namespace.dead_letters("orders", sample=5)

        last = orders.peek()[-1]
        assert (queue.count, queue.sampled, queue.newest) == (52, 5, last.enqueued_time)
        assert queue.words == "of the first 5: Late: Order <n> is late (5)"


@pytest.mark.thorough  # it asserts a time
def test_queues_are_looked_at_in_parallel(emulator: RunningEmulator, tmp_path: Path) -> None:
    names = [f"queue-{number}" for number in range(10)]
    with opened(emulator.connection_string, tmp_path) as namespace:
        for name in names:
            dead_letter_queue(namespace, name, 1)
    emulator.faults.network_delay_ms = 150
    with opened(emulator.connection_string, tmp_path) as namespace:
        began = time.monotonic()
        assert len(namespace.dead_letters()) == len(names)
        taken = time.monotonic() - began
        began = time.monotonic()
        namespace.entity("queue-0/$dlq").peek(1)
        one = time.monotonic() - began
    # Opening one link takes several round trips; one after the other, these alone take 10 times as long.
    assert taken < 6 * max(one, 1.5), (taken, one)


def test_reports_escape_what_messages_say(emulator: RunningEmulator, tmp_path: Path) -> None:
    with opened(emulator.connection_string, tmp_path) as namespace:
        dead_letter_queue(namespace, "orders", 1, reason="<script>alert(1)</script> | [x](http://bad)")
        letters = namespace.dead_letters()
        page, text = letters.to_html(), letters.to_markdown()
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert "<script" not in text
        assert r"\| \[x\]\(http" in text
        assert text.startswith("# Dead letters of ")

        path = letters.write(tmp_path / "report.html")
        assert path.read_text() == page
        assert path.stat().st_mode & 0o077 == 0
        with pytest.raises(ConfigurationError, match="exists"):
            letters.write(path)
        assert letters.write(tmp_path / "report.md", overwrite=True).read_text() == text
        with pytest.raises(ConfigurationError, match=r"end the name in \.md or \.html"):
            letters.write(tmp_path / "report.pdf")
        assert list(letters.to_pandas()["count"]) == [1]
