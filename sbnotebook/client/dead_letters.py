"""All dead-letter queues of a namespace at one glance, as a table and as a report."""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from sbnotebook.analysis import tables
from sbnotebook.analysis.exports import write_text
from sbnotebook.analysis.groups import CauseReader, Group, group_by_cause
from sbnotebook.analysis.tables import ShownRows, Table, without_empty
from sbnotebook.errors import ConfigurationError, JournalError, SbNotebookError, near_match
from sbnotebook.model import EntityAddress, PeekedMessage, SubQueue
from sbnotebook.model.message import end_of_partition, partition_of
from sbnotebook.settlement import (
    AsyncEntity,
    AsyncNamespace,
    EntityCounts,
    SequenceNumbers,
    explained,
    in_parallel,
)

if TYPE_CHECKING:
    import pandas as pd

_AT_ONCE: Final = 32
"""Queues that are peeked at the same time, at most."""
_WITHOUT_BODIES: Final = (HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES)
SAMPLE: Final = 250
"""Messages of each queue that are peeked at by default; one request returns no more."""
_COLUMNS: Final = ("entity", "count", "growth", "oldest", "newest", "causes", "problem")
_CAUSE_SECONDS: Final = 10.0
"""Seconds of processor time for the causes of all samples together."""
_MOST_CHARACTERS: Final = 60
_TITLE: Final = "Dead letters of {}"
_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #8884;padding:.3rem .8rem .3rem 0}"
)
_ESCAPED: Final = str.maketrans({each: f"\\{each}" for each in "\\`*_{}[]()#+!|~>-"} | {"<": "&lt;", "&": "&amp;"})
"""Characters that Markdown may read as its own."""


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """One dead-letter queue.

    Args:
        address: the queue, such as ``orders/$dlq``.
        count: its messages, as Service Bus counts them.
        growth: messages more than at the last look from this machine; None for the first look.
        since: the time of the last look; None for the first.
        oldest: when the oldest message of the sample was enqueued.
        newest: when the newest known message was enqueued; None where the last message is not known.
        sampled: the number of messages in the sample, the first of the queue.
        causes: the causes of the sample, the most frequent first.
        problem: why sbnotebook could not peek at the queue; None if it could.
    """

    address: EntityAddress
    count: int
    growth: int | None
    since: datetime | None
    oldest: datetime | None
    newest: datetime | None
    sampled: int
    causes: tuple[Group, ...]
    problem: str | None

    @property
    def words(self) -> str:
        """Return the most frequent causes in words, and the size of the sample where it is not the whole queue."""
        shown = [f"{_words(cause)} ({cause.count:,})" for cause in self.causes[:3]]
        others = len(self.causes) - len(shown)
        shown += [f"{others:,} more"] * (others > 0)
        part = f"of the first {self.sampled:,}: " if self.sampled < self.count and shown else ""
        return f"{part}{', '.join(shown)}"


class DeadLetters(ShownRows[DeadLetterQueue]):
    """The dead-letter queues of a namespace that have messages, or had some at the last look; the largest first.

    Shown as a table in a notebook and as text elsewhere.

    Args:
        host: the namespace.
        queues: the queues.
        entities: the number of queues and subscriptions that were counted.
        time: when the counts were asked for.
        sample: the messages of each queue that were peeked at, at most.
    """

    _one_line = False
    _fields = ("address", "count", "growth", "since", "oldest", "newest", "sampled", "words", "problem")

    def __init__(
        self, host: str, queues: Iterable[DeadLetterQueue], *, entities: int, time: datetime, sample: int
    ) -> None:
        super().__init__(queues)
        self.host = host
        self.entities = entities
        self.time = time
        self.sample = sample

    @property
    def total(self) -> int:
        """Return the number of messages in all of them."""
        return sum(queue.count for queue in self)

    def above(self, limit: int) -> list[DeadLetterQueue]:
        """Return the queues with more messages than a limit.

        Args:
            limit: 0 for all queues that have messages.
        """
        return [queue for queue in self if queue.count > limit]

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each queue."""
        return super().to_pandas().rename(columns={"address": "entity", "words": "causes"})

    def to_markdown(self) -> str:
        """Return a report in Markdown. Texts of messages are escaped, so they have no effect on its format."""
        headers, rows = self.cells()
        lines = [
            f"# {_TITLE.format(_markdown(self.host))}",
            "",
            _markdown(self.summary),
            *([""] if rows else []),
            *([_row(headers), _row(["---"] * len(headers))] if rows else []),
            *(_row([_markdown(tables.cell_text(value)) for value in row]) for row in rows),
        ]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return a report as a page in HTML, which loads nothing from elsewhere. Texts of messages are escaped."""
        title = html.escape(_TITLE.format(self.host))
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n{self.as_html()}\n</body></html>\n"
        )

    def write(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write a report to a new file, complete or not at all, which only its owner can read.

        Args:
            path: the file; ``.md`` is Markdown, ``.html`` a page.
            overwrite: True to replace an existing file.

        Returns:
            The path of the file.

        Raises:
            ConfigurationError: there is no such format or folder, or the file exists.
        """
        place = Path(path).expanduser()
        formats = {".md": self.to_markdown, ".html": self.to_html}
        if place.suffix.lower() not in formats:
            raise ConfigurationError(
                f"A report is not written as {place.suffix or place.name!r}: end the name in .md or .html."
            )
        return write_text(formats[place.suffix.lower()](), place, overwrite=overwrite)

    @property
    def summary(self) -> str:
        """Return the number of messages and queues, and what the causes are read from, in a few sentences."""
        full = len(self.above(0))
        letters, queues = "s" * (self.total != 1), "s" * (full != 1)
        counted = f"{self.total:,} dead letter{letters} in {full:,} queue{queues}" if full else "No dead letters"
        said = [f"{self.time:%Y-%m-%d %H:%M:%SZ}: {counted}. Checked {self.entities:,} queues and subscriptions."]
        if any(queue.causes for queue in self):
            said.append(f"Causes and oldest time come from the first {self.sample:,} messages of each queue.")
        times = {queue.since for queue in self if queue.since is not None}
        if times:
            said.append(f"Growth is since the last look from this machine, {min(times):%Y-%m-%d %H:%M:%SZ}.")
        return " ".join(said)

    def _table(self, most: int) -> Table:  # noqa: ARG002 (all rows)
        return *self.cells(), self.summary

    def cells(self) -> tuple[list[str], list[list[Any]]]:
        """Return the columns that are not empty, and a row for each queue."""
        rows = [
            [
                queue.address,
                f"{queue.count:,}",
                None if queue.growth is None else f"{queue.growth:+,}" if queue.growth else "0",
                queue.oldest,
                queue.newest,
                queue.words or None,
                queue.problem,
            ]
            for queue in self
        ]
        return without_empty(_COLUMNS, rows)


async def look_at(namespace: AsyncNamespace, entities: Collection[EntityAddress] | None, sample: int) -> DeadLetters:
    """Look at the dead-letter queues that have messages, or had some at the last look, and group their samples.

    Service Bus counts dead letters with their entity, so one listing has the counts of all. The rest is peeked, at
    several queues at the same time: the first page of each, and its last message.
    """
    time, topics = datetime.now(UTC), None if entities is None else {each.name for each in entities}
    listed = choose_entities(await namespace.entities(topics), entities)
    counts = dict(dead_letter_counts(listed))
    try:
        before = await anyio.to_thread.run_sync(partial(namespace.tables.replace_looks, counts, time))
    except (JournalError, ConfigurationError):  # without a journal, the growth is unknown
        before = {}
    wanted = [each for each, count in counts.items() if count or (each in before and before[each][0])]
    looks = await in_parallel(
        lambda each: _look(namespace, each, counts[each], before.get(each), sample), wanted, _AT_ONCE
    )
    queues = await anyio.to_thread.run_sync(_with_causes, sorted(looks, key=lambda look: -look[0].count))
    return DeadLetters(namespace.host, queues, entities=len(listed), time=time, sample=sample)


def choose_entities(
    listed: Sequence[EntityCounts], entities: Collection[EntityAddress] | None = None
) -> list[EntityCounts]:
    """Return the queues and subscriptions that addresses name, by default all; a topic names its subscriptions."""
    places = [counts for counts in listed if counts.kind != "topic"]
    if entities is None:
        return places
    chosen: dict[EntityAddress, EntityCounts] = {}
    for address in entities:
        found = [each for each in places if address.entity in (each.address, each.address.sends_to)]
        if not found and not any(each.address == address.entity for each in listed):
            near = near_match(str(address.entity), (str(each.address) for each in listed))
            hint = f" (did you mean {near}?)" if near else ""
            raise ConfigurationError(
                f"There is no queue, topic or subscription {str(address.entity)!r}{hint}: %sb_entities lists them."
            )
        chosen |= {each.address: each for each in found}
    return list(chosen.values())


def dead_letter_counts(listed: Sequence[EntityCounts]) -> Iterator[tuple[EntityAddress, int]]:
    for each in listed:
        yield each.address.dead_letter, each.dead_letter
        transfer = EntityAddress(each.address.name, each.address.subscription, SubQueue.TRANSFER_DEAD_LETTER)
        yield transfer, each.transfer_dead_letter


async def _look(
    namespace: AsyncNamespace, address: EntityAddress, count: int, before: tuple[int, datetime] | None, sample: int
) -> tuple[DeadLetterQueue, Sequence[PeekedMessage]]:
    growth, since = (None, None) if before is None else (count - before[0], before[1])
    queue = DeadLetterQueue(address, count, growth, since, None, None, 0, (), None)
    if not count:
        return queue, ()
    entity = namespace.entity(address)
    try:
        messages = (await entity.peeker.page(1, sample)).messages(_WITHOUT_BODIES)
        last = await _last(entity, messages, max(count, len(messages))) if messages else None
    except SbNotebookError:
        raise
    except Exception as error:  # noqa: BLE001 (a queue that is gone must not hide what others have)
        return replace(queue, problem=explained(error)), ()
    times = [message.enqueued_time for message in messages if message.enqueued_time is not None]
    end = last.enqueued_time if last is not None else None
    newest = None if end is None else max([*times, end])
    return replace(queue, oldest=min(times, default=None), newest=newest, sampled=len(messages)), messages


async def last_near(next_number: Callable[[int], Awaitable[int | None]], known: int, guess: int, end: int) -> int:
    """Return the last sequence number up to an end: probably the guess, and not before the known one."""
    numbers = SequenceNumbers(next_number)
    found = await next_number(guess) if guess > known else known
    if found is None or found > end:
        return await numbers.last(known, guess - 1)
    return await numbers.last(found, end, step=1)


async def _last(entity: AsyncEntity, sample: Sequence[PeekedMessage], count: int) -> PeekedMessage | None:
    """Return the last message; the count tells where it probably is, if no number is missing."""
    known: dict[int, PeekedMessage] = {}

    async def next_number(number: int) -> int | None:
        page = await entity.peeker.page(number, 1, attempts=1)
        for message in page.messages(_WITHOUT_BODIES):
            known[message.sequence_number] = message
            return message.sequence_number
        return None

    first, seen = sample[0].sequence_number, sample[-1]
    end = end_of_partition(partition_of(first))
    if partition_of(seen.sequence_number) != partition_of(first):
        return None if count > len(sample) else seen
    known[seen.sequence_number] = seen
    last = await last_near(next_number, seen.sequence_number, first + count - 1, end)
    if count > len(sample) and await next_number(end + 1) is not None:
        return None  # other partitions follow
    return known[last]


def _with_causes(looks: Iterable[tuple[DeadLetterQueue, Sequence[PeekedMessage]]]) -> list[DeadLetterQueue]:
    read = CauseReader(_CAUSE_SECONDS)
    return [replace(queue, causes=tuple(group_by_cause(sample, read=read))) for queue, sample in looks]


def _words(cause: Group) -> str:
    said = ": ".join(part for part in (cause.reason, cause.cause or cause.frame) if part) or "no reason"
    text = tables.printable(said)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return tables.printable(text).translate(_ESCAPED)
