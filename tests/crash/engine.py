"""A process that calls a stream as Spark does, with Spark's logs and a sink that takes each micro-batch once.

It starts in a second or two, where Java takes ten, so that it can be killed often. Run with a job, a dict in JSON: see
:class:`EngineJob`. What it prints is one line in JSON for each micro-batch.

The order of the calls is that of Spark's MicroBatchExecution: ``latestOffset``, the offset log, ``commit`` of the
micro-batch before, ``partitions``, ``read`` by another instance, the sink, the commit log. A micro-batch whose offset
is written and which is not in the commit log comes first after a start, with the same offsets.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from sbnotebook.spark.consume_stream import ConsumeStream
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.schema import message_schema
from tests.kills import digest


@dataclass
class EngineJob:
    """The stream.

    Args:
        options: of the stream, its entity and namespace too.
        directory: for the logs and the sink.
        is_available_now: whether it runs again and again until nothing is left, or always.
    """

    options: dict[str, str]
    directory: str
    is_available_now: bool


def write(path: Path, content: Any) -> None:
    """Write a file completely, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(content))
    draft.rename(path)


def last(directory: Path) -> int:
    """The number of the last file of a log."""
    return max((int(path.name) for path in directory.glob("*") if path.name.isdigit()), default=-1)


class Engine:
    """One run of a query.

    Args:
        job: what to do.
    """

    def __init__(self, job: EngineJob) -> None:
        self.job, self.place = job, Path(job.directory)
        self.stream = self.planned()

    def planned(self) -> ConsumeStream:
        """A stream as it comes to a process of Spark's."""
        stream = ConsumeStream(StreamOptions.parse(self.job.options), message_schema())
        pickled: bytes = cloudpickle.dumps(stream)  # pyright: ignore[reportUnknownMemberType]
        return cloudpickle.loads(pickled)

    def run(self) -> None:
        """All micro-batches that there are; for ever, if the job says so."""
        number = last(self.place / "offsets")
        if self.job.is_available_now:
            self.stream.prepareForTriggerAvailableNow()
        if number >= 0 and last(self.place / "commits") < number:
            self.batch(number)
        limit = self.stream.getDefaultReadLimit()
        while True:
            start = self.offset(number)
            end = self.stream.latestOffset(start, limit)
            if end == start:
                if self.job.is_available_now:
                    return
                continue
            number += 1
            write(self.place / "offsets" / str(number), end)
            as_spark_does: Any = self.stream
            as_spark_does.commit(start)
            self.batch(number)

    def offset(self, number: int) -> dict[str, Any]:
        """Return the offset log."""
        if number < 0:
            return self.stream.initialOffset()
        return json.loads((self.place / "offsets" / str(number)).read_text())

    def batch(self, number: int) -> None:
        """Read one micro-batch into the sink, which knows what it has already."""
        parts = self.stream.partitions(self.offset(number - 1), self.offset(number))
        rows = [row for part in parts for row in self.rows(part)]
        kept = self.place / "sink" / str(number)
        if not kept.exists():
            write(kept, rows)
        elif json.loads(kept.read_text()) != rows:
            say("differs", number)
        write(self.place / "commits" / str(number), [])
        say("done", number)

    def rows(self, part: Any) -> list[dict[str, Any]]:
        """What a task reads."""
        rows = [row for batch in self.planned().read(part) for row in batch.to_pylist()]
        return [
            {name: row[name] for name in ("message_id", "session_id", "sequence_number", "delivery_count")}
            | {"digest": digest(row["body"])}
            for row in rows
        ]


def say(what: str, number: int) -> None:
    """Tell the process that started this one."""
    sys.stdout.write(json.dumps({"what": what, "number": number}) + "\n")
    sys.stdout.flush()


def main(job: EngineJob) -> None:
    """Start again what fails or ends, for ever."""
    while True:
        engine = Engine(job)
        try:
            engine.run()
        except Exception as error:  # noqa: BLE001 - as a query fails, after any error
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            time.sleep(0.1)
        finally:
            engine.stream.stop()


if __name__ == "__main__":
    main(EngineJob(**json.loads(sys.argv[1])))
