"""A query as Spark drives it, without Spark: its checkpoint, its sink, and the processes that come and go.

The order of the calls is that of ``MicroBatchExecution``. A micro-batch whose offset is in the log but not committed is
planned again, with the same offsets and without asking for the latest. Then the latest offset is requested with the
last committed one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, Final

from pyspark.sql.types import StructType

from sbnotebook.client import Namespace
from sbnotebook.emulator import ManualClock, RunningEmulator
from sbnotebook.model import Message
from sbnotebook.spark.consume_stream import ConsumeStream
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.schema import message_schema

__all__ = ["POINTS", "Query", "arriving", "fill"]

Offset = dict[str, Any]
POINTS: Final = ("logged", "planned", "read", "written", "committed")
"""The points of a micro-batch at which a process may end, in their order."""
_PATIENCE: Final = 60.0


@dataclass
class Query:
    """One query.

    Args:
        emulator: where the entity is.
        entity: to consume.
        options: of the stream.
    """

    emulator: RunningEmulator
    entity: str
    options: dict[str, str] = field(default_factory=dict[str, str])
    offsets: list[str] = field(default_factory=list[str])
    """The offset log, as text as on a disk; its first entry is that of no messages."""
    committed: int = 0
    """The number of the last micro-batch in the commit log."""
    sink: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """The messages of each micro-batch by their ids: a sink that writes the same micro-batch once."""
    process: ConsumeStream | None = None

    def started(self) -> ConsumeStream:
        """The process, which is started if there is none."""
        if self.process is None:
            given = {"entity": self.entity, "connectionString": self.emulator.connection_string, "mode": "consume"}
            options = StreamOptions.parse(given | self.options)
            self.process = ConsumeStream(options, StructType([message_schema()["message_id"]]))
            if not self.offsets:
                self.offsets.append(json.dumps(self.process.initialOffset()))
        return self.process

    def log_next(self) -> None:
        """Write the offset of the next micro-batch to the log; there must be one."""
        until = time.monotonic() + _PATIENCE
        while not self.ask():
            assert time.monotonic() < until, "No message came."

    def ask(self) -> bool:
        """Ask for the latest offset, and write it to the log; whether there was a new one."""
        process = self.started()
        assert self.committed == len(self.offsets) - 1
        start = self.offset(self.committed)
        latest = process.latestOffset(start, process.getDefaultReadLimit())
        if latest == start:
            return False
        self.offsets.append(json.dumps(latest))
        return True

    def planned(self) -> list[Any]:
        """Plan the micro-batch that is in the log and not committed."""
        last = len(self.offsets) - 1
        return self.started().partitions(self.offset(last - 1), self.offset(last))

    def read(self, partitions: list[Any]) -> list[str]:
        """The ids of the messages of a micro-batch."""
        batches = [batch for each in partitions for batch in self.started().read(each)]
        return [row["message_id"] for batch in batches for row in batch.to_pylist()]

    def write(self, ids: list[str]) -> None:
        """Give a micro-batch to the sink."""
        self.sink[len(self.offsets) - 1] = ids

    def commit(self) -> None:
        """Write to the log that the micro-batch is done."""
        self.committed = len(self.offsets) - 1

    def step(self) -> None:
        """The micro-batch that is not finished, or else the next one, from beginning to end; there must be one."""
        self.started()
        if not self.is_open:
            self.log_next()
        self.finish()

    def finish(self) -> None:
        """Carry out the micro-batch that is in the log."""
        self.write(self.read(self.planned()))
        self.commit()

    def end_at(self, point: str, end: str, clock: ManualClock) -> None:
        """Carry out a micro-batch, and the next one up to a point; then end the process, its locks, and start again.

        Args:
            point: one of ``POINTS``.
            end: ``kill`` or ``stop``.
            clock: of the emulator.
        """
        self.step()
        self.log_next()
        first: list[str] = []
        reached = POINTS.index(point)
        if reached >= POINTS.index("planned"):
            partitions = self.planned()
            first = self.read(partitions) if reached >= POINTS.index("read") else []
        if reached >= POINTS.index("written"):
            self.write(first)
        if point == "committed":
            self.commit()
        getattr(self, end)()
        clock.advance(61)
        if point in ("read", "written"):
            assert self.read(self.planned()) == first, "the new process reads the same"

    def drain(self) -> None:
        """Take the current messages, in the way of trigger available-now."""
        self.started().prepareForTriggerAvailableNow()
        self.drain_prepared()

    def drain_prepared(self) -> None:
        """Take the messages that existed when that was prepared."""
        while self.is_open or self.ask():
            self.finish()

    @property
    def is_open(self) -> bool:
        """Whether a micro-batch is in the offset log and not in the commit log."""
        return self.committed < len(self.offsets) - 1

    def stop(self) -> None:
        """End the process as Spark does, by the signal."""
        process, self.process = self.process, None
        if process is not None:
            process.stop()

    def kill(self) -> None:
        """End the process without a word to the service."""
        if self.process is not None:
            self.emulator.drop_connections(self.entity)
            self.stop()

    def offset(self, number: int) -> Offset:
        """An entry of the log."""
        return json.loads(self.offsets[number])

    @property
    def ids(self) -> list[str]:
        """All messages in the sink."""
        return sorted(each for ids in self.sink.values() for each in ids)


def fill(namespace: Namespace, entity: str, count: int, start: int = 0, size: int = 1) -> list[str]:
    """Send messages to an entity; return their ids, which are in order."""
    messages = [Message(body=b"x" * size, message_id=f"m{n:05}") for n in range(start, start + count)]
    assert namespace.entity(entity).send(messages).ok
    return [message.message_id or "" for message in messages]


@contextmanager
def arriving(namespace: Namespace, entity: str, rate: float, seconds: float, **fields: Any) -> Generator[Thread]:
    """Send messages to an entity, one at a time, while the block runs, and for so many seconds at most.

    Args:
        namespace: of the entity.
        entity: where they arrive.
        rate: messages a second.
        seconds: after which the sender ends by itself.
        fields: of each message.
    """
    ended, begun = Event(), Event()

    def messages() -> Iterator[Message]:
        for number in range(round(rate * seconds)):
            if number == 3:
                begun.set()
            if ended.is_set():
                return
            yield Message(message_id=f"late{number:05}", **fields)

    def send() -> None:
        namespace.entity(entity).send(messages(), batch_size=1, rate=rate, max_in_flight=20, show_progress=False)

    sender = Thread(target=send)
    sender.start()
    try:
        assert begun.wait(_PATIENCE)
        yield sender
    finally:
        ended.set()
        sender.join(_PATIENCE)
