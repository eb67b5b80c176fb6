"""A message of 256 KB costs little beyond a harmless one of its size.

``SBNOTEBOOK_CRASHES`` asks for that many random messages beside all that are constructed; a test run tries a few of
each. ``SBNOTEBOOK_SEED`` repeats a run's random messages.
"""

# ruff: noqa: S311, SLF001 (the chance has no secrets; bytes are sent as they are)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from azure.servicebus.exceptions import ServiceBusError

import sbnotebook
from sbnotebook.client import Entity, Namespace
from sbnotebook.client.messages import Messages
from sbnotebook.client.portal import run
from sbnotebook.settlement.sdk import clients
from sbnotebook.widgets.table.message_table import answer
from sbnotebook.widgets.triage import Triage
from tests.chances import SEED, rounds
from tests.costs import forget_the_most, megabytes
from tests.security.attacked import attacked
from tests.security.hostile_payloads import constructed, harmless, random_payload

pytestmark = pytest.mark.thorough

RANDOM = rounds(0, 50)
SECONDS, MEGABYTES = 1.0, 100.0
TOGETHER = 15
"""Messages that are looked at together: what they cost together, each costs at most."""
RECEIVED = list[int]()
"""The number of messages in each queue."""
WORST = (
    "arrays of 64 empty lists as the body", "ids of one hash as the body", "ids of one hash as a property",
    "arrays of 64 empty lists as an annotation", "many sequences of many empty lists", "packed zeros", "packed emoji",
    "deep JSON", "JSON with a number of 250,000 digits, called JSON", "50,000 data sections", "thousands of properties",
    "many dashes in DeadLetterErrorDescription", "tokens in DeadLetterReason", "lines", "blanks",
)  # fmt: skip


class Cost(NamedTuple):
    """Of one action: the time that this process computed, and what its memory grew to meanwhile."""

    seconds: float
    megabytes: float


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with (
        attacked(tmp_path_factory.mktemp("attacked")) as emulator,
        sbnotebook.connect(emulator.connection_string) as namespace,
    ):
        costs_of(namespace, [harmless()])  # everything is imported
        yield namespace


def cost(action: Callable[[], object]) -> Cost:
    # Return free memory to the system, and forget the highest usage so far.
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    before, started = forget_the_most(), time.process_time()
    action()
    return Cost(time.process_time() - started, megabytes("VmHWM") - before)


def costs_of(namespace: Namespace, payloads: Sequence[bytes]) -> dict[str, Cost]:
    """Return the cost of a queue of these messages, by action."""
    name = f"hostile-{random.randrange(10**9)}"
    namespace.create_queue(name)
    queue = namespace.entity(name)
    run(send_all, namespace, queue, payloads)
    seen: list[Messages] = []

    def peek() -> None:
        seen.append(queue.peek(show_progress=False))
        repr(seen[0])
        seen[0]._repr_html_()

    def lock() -> None:
        with queue.lock(len(payloads), max_wait=2) as batch:
            assert len(batch.messages) == len(seen[0])

    costs = {
        "peek": cost(peek),
        "lock": cost(lock),
        "groups": cost(lambda: seen[0].groups()._repr_html_()),
        "triage": cost(lambda: look_at(namespace, queue)),
        "export": cost(lambda: export(seen[0])),
    }
    RECEIVED.append(len(seen[0]))
    namespace.delete_queue(name)
    return costs


async def send_all(namespace: Namespace, queue: Entity, payloads: Sequence[bytes]) -> None:
    waiting = list(payloads)
    while waiting:
        async with namespace.asynchronous.resources.connection.sender(queue.address) as sender:
            await clients.make_ready(sender)
            with contextlib.suppress(ServiceBusError):  # what the service refuses, no client gets
                while waiting:
                    await clients.send_payload(sender, waiting.pop())


def look_at(namespace: Namespace, queue: Entity) -> None:
    """Do what a browser does with the panel of the triage."""
    triage = Triage(namespace, str(queue.address))
    triage.refresh()
    assert triage.wait()
    table: Any = triage.table
    table._handle_custom_msg({"kind": "ready", "page": "one"}, [])
    deadline = time.monotonic() + 60
    while len(table.causes.fingerprints) < len(table.rows) and time.monotonic() < deadline:
        time.sleep(0.01)
    answer(table, "search", {"words": ["carrier"]})
    for row in range(len(table.rows)):
        answer(table, "detail", {"row": row})
    triage.close()


def export(messages: Messages) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("parquet", "jsonl", "csv"):
            messages.export(Path(folder) / f"messages.{ending}")


def over_budget(namespace: Namespace, payloads: Sequence[bytes], plain: Mapping[str, Cost]) -> dict[str, Cost]:
    """Return the excess cost of messages beyond harmless ones, by action."""
    found: dict[str, Cost] = {}
    for name, (seconds, grown) in costs_of(namespace, payloads).items():
        beyond = Cost(seconds - len(payloads) * plain[name].seconds, grown - len(payloads) * plain[name].megabytes)
        if beyond.seconds > SECONDS or beyond.megabytes > MEGABYTES:
            found[name] = beyond
    return found


def culprits(
    namespace: Namespace, payloads: Iterable[tuple[str, bytes]], plain: Mapping[str, Cost]
) -> dict[str, dict[str, Cost]]:
    """Return the messages that cost too much, by their names, and what they cost."""
    found: dict[str, dict[str, Cost]] = {}
    waiting = iter(payloads)
    while together := dict(islice(waiting, TOGETHER)):
        if over_budget(namespace, [*together.values()], plain):
            alone = {name: over_budget(namespace, [payload], plain) for name, payload in together.items()}
            found |= {name: over for name, over in alone.items() if over}
    return found


def test_no_message_costs_much_more_than_a_harmless_one(namespace: Namespace) -> None:
    plain = costs_of(namespace, [harmless()])
    every = constructed()
    chosen = every if RANDOM else {name: every[name] for name in WORST}
    RECEIVED.clear()
    assert culprits(namespace, chosen.items(), plain) == {}
    assert sum(RECEIVED) > len(chosen) * 0.8, "the service takes nearly all of them"
    by_seed = ((f"SBNOTEBOOK_SEED={seed}", random_payload(seed)) for seed in range(SEED, SEED + max(RANDOM, 6)))
    assert culprits(namespace, by_seed, plain) == {}
