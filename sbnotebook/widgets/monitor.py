"""Counts, ages and rates of entities over time, sampled gently and drawn as lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from sbnotebook.analysis import tables
from sbnotebook.client import Namespace
from sbnotebook.client.monitor_sampling import Sample, Sampler
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.model.durations import duration_text
from sbnotebook.widgets.blocks import Block, Button, Chart, Column, Field, Row, Table, Text
from sbnotebook.widgets.panel import Panel, must_wait, sentence

if TYPE_CHECKING:
    import pandas as pd

_KEPT: Final = 500
"""Samples of each entity that are kept: 42 minutes at one in five seconds."""
_SHARE: Final = 5
"""The pause before the next sample, in times of the last one: it spares a slow service."""
_LONGEST_PAUSE: Final = 300.0
_FORGOTTEN_AFTER: Final = 90.0
"""Seconds after which a page counts as gone, which says each 30 seconds that it is there."""
_HEADERS: Final = (
    "entity",
    "active",
    "scheduled",
    "dead_letter",
    "transfer_dead_letter",
    "oldest_age",
    "arrived",
    "left",
)


class Monitor(Panel):
    """Watches counts, the age of the oldest message, and the least arrivals and departures of each second.

    Samples are taken while the panel can be seen; :meth:`start` takes them also while the panel is hidden. Each costs a
    management operation and a few peeks for each entity, and nothing is locked.

    Args:
        namespace: where the entities are.
        entities: queues and subscriptions, or topics for their subscriptions; None for the 12 with the most messages.
        every: seconds between two samples.

    Raises:
        ConfigurationError: a sub-queue is named, or the seconds are not above 0.

    Example:
        >>> monitor = Monitor(namespace, ["orders"], every=10)  # doctest: +SKIP
        >>> monitor.to_pandas()  # doctest: +SKIP
    """

    def __init__(
        self, namespace: Namespace, entities: Iterable[str | EntityAddress] | None = None, *, every: float = 5.0
    ) -> None:
        if every <= 0:
            raise ConfigurationError("every is the seconds between two samples, above 0.")
        super().__init__()
        self._namespace = namespace
        self._history: dict[EntityAddress, deque[Sample]] = {}
        self._pages: dict[str, float] = {}
        """When each page in which it is in sight was last heard of: a crashed one says nothing."""
        self._wanted, self._unseen = True, False
        self._every = every
        self._said = "Samples are taken while this can be seen."
        self._sampling = Lock()
        self._failures = 0
        self._sampler = Sampler(namespace, entities)

    def blocks(self) -> Sequence[Block]:
        every = Field(
            "every (s)", self._every, self._set_every, "number", limits=(0.1, 3_600), is_whole=False, size="short"
        )
        name, tooltip = "Stop" if self._wanted else "Start", "Take no more samples, or take them again"
        switch = Button(name, lambda: self._want(wanted=not self._wanted), tooltip, key="switch")
        cards = [_card(str(entity), list(samples)) for entity, samples in list(self._history.items())]
        return [
            Row([switch, every, Text(self._said if self._wanted else "Stopped.", "quiet", key="status")]),
            Text("While a cell runs, Stop, Start and the interval wait for its end." if must_wait() else "", "quiet"),
            Row(cards or [Text("The first counts are on their way…", "quiet")], key="cards"),
        ]

    def start(self) -> None:
        """Take samples from now on, also while the panel is hidden, until :meth:`stop` or :meth:`close`."""
        self._want(wanted=True, unseen=True)

    def stop(self) -> None:
        """Take no more samples; earlier ones stay."""
        self._want(wanted=False)

    def sample(self) -> list[Sample]:
        """Take a sample of each entity now and draw it.

        Raises:
            ConfigurationError: there is no such entity.
        """
        with self._sampling:
            samples = self._sampler.sample()
            for each in samples:
                self._history.setdefault(each.entity, deque(maxlen=_KEPT)).append(each)
        self._said = f"as of {datetime.now(UTC):%H:%M:%S} UTC"
        self.redraw()
        return samples

    def use_plain(self, plain: bool = True) -> None:
        """Show plain ipywidgets; whether they are in sight is unknown, so samples are taken until it is stopped."""
        super().use_plain(plain)
        self._wake()

    @property
    def is_sampling(self) -> bool:
        """Tell whether samples are being taken from time to time."""
        return self.is_looking

    def to_pandas(self) -> pd.DataFrame:
        """Return the last 500 samples of each entity, with the fields of ``Sample`` as columns."""
        import pandas as pd

        names = [field.name for field in fields(Sample)]
        samples = sorted((s for each in list(self._history.values()) for s in each), key=lambda s: s.time)
        rows = [[getattr(sample, name) for name in names] for sample in samples]
        frame = pd.DataFrame(rows, columns=names)
        return frame.assign(entity=frame["entity"].astype("string"), newest=frame["newest"].astype("Int64"))

    def close(self) -> None:
        """Stop, and take the panel away."""
        self._wanted = False
        super().close()

    def to_text(self) -> str:
        """Return the latest samples as a table. Takes the first ones if needed."""
        if not self._history:
            self.sample()
        return repr(self)

    def __repr__(self) -> str:
        latest = [samples[-1] for samples in list(self._history.values())]
        if not latest:
            return f"<Monitor of {self._namespace.host}: no samples yet; sample() takes one>"
        when = max(sample.time for sample in latest)
        caption = f"{self._namespace.host} at {when:%Y-%m-%d %H:%M:%S} UTC; ages in seconds, rates per second at least"
        return tables.text_table(_HEADERS, [[_shown(sample, name) for name in _HEADERS] for sample in latest], caption)

    # ------------------------------------------------------------------ when samples are taken

    @property
    def _is_due(self) -> bool:
        is_seen = any(time.monotonic() - heard < _FORGOTTEN_AFTER for heard in list(self._pages.values()))
        return self._wanted and (self._unseen or self.is_plain or is_seen)

    def _want(self, *, wanted: bool, unseen: bool = False) -> None:
        self._wanted, self._unseen = wanted, unseen
        self.redraw()
        self._wake()

    def _set_every(self, every: float) -> None:
        self._every = every
        self.halt()  # the next sample is taken at once

    def seen(self, page: str, how: str) -> None:
        if how == "gone":
            self._pages.pop(page, None)
        else:
            self._pages[page] = time.monotonic()
        self._wake()

    def _wake(self) -> None:
        """Begin to take samples, or end it, as they are wanted now."""
        with self.lock:
            if not self._is_due:
                self.halt()
            elif not self.is_looking:
                self.look(self._run)

    def ended(self, problem: str) -> None:
        self._said = problem or self._said
        self._wake()

    def _run(self, stop: Event) -> None:
        while self._is_due and not stop.is_set():
            stop.wait(self._take())

    def _take(self) -> float:
        """Take a sample, and return the seconds to the next one."""
        is_first = not self._history  # it opens connections, which says nothing of the others
        begin = time.monotonic()
        try:
            self.sample()
        except Exception as error:  # noqa: BLE001 (it is shown, and the next sample may succeed)
            self._failures += 1
            pause = pause_after(self._every, 0.0, self._failures)
            self._said = f"{sentence(error)} The next attempt is in {duration_text(pause, rounded=True)}."
            self.redraw()
            return pause
        self._failures = 0
        return pause_after(self._every, 0.0 if is_first else time.monotonic() - begin, 0)


def pause_after(every: float, took: float, failures: int) -> float:
    """Return the seconds to the next sample: more if Service Bus is slow, and more with each failure."""
    if failures:
        return max(every, min(every * 2.0 ** min(failures, 30), _LONGEST_PAUSE))
    return max(every, _SHARE * took)


def _card(entity: str, samples: Sequence[Sample]) -> Block:
    now = samples[-1]
    counts: dict[str, object] = {"active": now.active, "dead letters": now.dead_letter, "later": now.scheduled}
    if now.transfer_dead_letter:
        counts["transfer"] = now.transfer_dead_letter
    if now.oldest_age is not None:
        counts["oldest"] = duration_text(now.oldest_age, rounded=True)
    times = [round(each.time.timestamp() * 1000) for each in samples]
    rates = {
        "in": [each.arrived and round(each.arrived, 3) for each in samples],
        "out": [each.left and round(each.left, 3) for each in samples],
    }
    numbers = {"active": [each.active for each in samples], "dead letters": [each.dead_letter for each in samples]}
    return Column(
        [
            Table(list(counts), [list(counts.values())]),
            Chart("Messages", times, numbers, key="messages"),
            Chart("Per second, at least", times, rates, key="rates"),
        ],
        entity,
        "card",
    )


def _shown(sample: Sample, name: str) -> object:
    value = getattr(sample, name)
    return f"{value:,.1f}" if isinstance(value, float) else value
