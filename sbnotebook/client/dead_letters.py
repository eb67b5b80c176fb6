"""All dead-letter queues of a namespace at one glance, as a table and as a report."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from sbnotebook.analysis import tables
from sbnotebook.analysis.exports import write_text
from sbnotebook.analysis.groups import CauseReader, Group, group_by_cause
from sbnotebook.analysis.shown import ShownRows, Table, without_empty
from sbnotebook.client.dead_letter_looks import DeadLetterLook, look_at_dead_letters
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import AsyncNamespace

if TYPE_CHECKING:
    import pandas as pd

SAMPLE: Final = 250
"""Messages of each queue that are peeked at by default; one request returns no more."""
_COLUMNS: Final = ("entity", "count", "growth", "oldest", "newest", "causes", "problem")
_MOST_CAUSES: Final = 3
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
        shown = [f"{_words(cause)} ({cause.count:,})" for cause in self.causes[:_MOST_CAUSES]]
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
        headers, rows = self.cells()
        title = html.escape(_TITLE.format(self.host))
        table = tables.html_table(headers, rows) if rows else ""
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n<p>{html.escape(self.summary)}</p>\n{table}\n"
            "</body></html>\n"
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


async def look_at(
    namespace: AsyncNamespace, entities: Sequence[EntityAddress] | None, sample: int, now: datetime | None = None
) -> DeadLetters:
    """Look at dead-letter queues, and group their samples by cause.

    See :meth:`sbnotebook.client.Namespace.dead_letters`.
    """
    time = now or datetime.now(UTC)
    looks, counted = await look_at_dead_letters(namespace, entities, sample=sample, now=time)
    read = partial(_read, looks)
    queues = await anyio.to_thread.run_sync(read)
    return DeadLetters(namespace.host, queues, entities=counted, time=time, sample=sample)


def _read(looks: Sequence[DeadLetterLook]) -> list[DeadLetterQueue]:
    read = CauseReader(_CAUSE_SECONDS)
    return [_queue(look, read) for look in looks]


def _queue(look: DeadLetterLook, read: CauseReader) -> DeadLetterQueue:
    times = [message.enqueued_time for message in look.sample if message.enqueued_time is not None]
    last = look.last.enqueued_time if look.last is not None else None
    return DeadLetterQueue(
        look.address,
        look.count,
        growth=None if look.before is None else look.count - look.before.messages,
        since=None if look.before is None else look.before.time,
        oldest=min(times, default=None),
        newest=None if last is None else max([*times, last]),
        sampled=len(look.sample),
        causes=tuple(group_by_cause(look.sample, read=read)),
        problem=look.problem,
    )


def _words(cause: Group) -> str:
    said = ": ".join(part for part in (cause.reason, cause.cause or cause.frame) if part) or "no reason"
    text = tables.printable(said)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return tables.printable(text).translate(_ESCAPED)
