"""Counts, ages and rates of entities over time, sampled gently and drawn as lines."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import anywidget
import ipywidgets as widgets

from sbnotebook.analysis import tables
from sbnotebook.client import Namespace
from sbnotebook.client.monitor_sampling import Sample, Sampler
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.model.durations import duration_text
from sbnotebook.widgets import background
from sbnotebook.widgets.background import must_wait
from sbnotebook.widgets.front_end import Patience, module, style
from sbnotebook.widgets.panel import Panel, button, panel_style, row, text

if TYPE_CHECKING:
    import pandas as pd

_KEPT: Final = 500
"""Samples of each entity that are kept, here and in the browser: 42 minutes at one in five seconds."""
_SHARE: Final = 5
"""Samples are taken once in so many times as long as they take, so that a slow service is not kept busy."""
_LONGEST_PAUSE: Final = 300.0
_PLAIN_AFTER: Final = 15.0
"""Seconds of an idle kernel after which lines that do not appear give way to words."""
_FORGOTTEN_AFTER: Final = 90.0
"""Seconds without a word after which a view counts as gone. A view in sight says so each 30 seconds."""
_WAITING: Final = "While a cell runs, Stop, Start and the interval wait for its end."
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


class MonitorChart(anywidget.AnyWidget):
    """The lines, a card for each entity."""

    _esm = module("monitor.js")
    _css = style("monitor.css", "vscode.css")


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
        self._namespace = namespace
        self._history: dict[EntityAddress, deque[Sample]] = {}
        self._views: dict[str, float] = {}
        """When each view in sight was last heard of (``time.monotonic``): a page that crashed says nothing."""
        self._wanted, self._unseen, self._is_plain, self._closed = True, False, False, False
        self._sampling = threading.Lock()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self.chart, self._lines = MonitorChart(), text()
        self._drawing = widgets.VBox([self.chart])
        self._sampler = Sampler(namespace, entities)
        if every <= 0:
            raise ConfigurationError("every is the seconds between two samples, above 0.")
        self.chart.on_msg(self._told)
        self.every = widgets.BoundedFloatText(
            every, min=0.1, max=3_600, step=1, description="every (s)", layout=widgets.Layout(width="150px")
        )
        self.every.observe(lambda _: self._wake(), "value")
        self.switch = button("Stop", "Take no more samples, or take them again", self._switch)
        self.status = text("Samples are taken while this can be seen.", "quiet")
        waiting = [text(_WAITING, "quiet")] if must_wait() else []
        super().__init__([panel_style(), row(self.switch, self.every, self.status), *waiting, self._drawing])
        self._patience = Patience(_PLAIN_AFTER, self.use_plain)
        if os.environ.get("SBNOTEBOOK_WIDGETS") == "plain":
            self.use_plain()
        self.add_class("sbn-panel")

    def start(self) -> None:
        """Take samples from now on, also while the panel is hidden, until :meth:`stop` or :meth:`close`."""
        self._unseen = True
        self._set_wanted(wanted=True)

    def stop(self) -> None:
        """Take no more samples; earlier ones stay."""
        self._unseen = False
        self._set_wanted(wanted=False)

    def sample(self) -> list[Sample]:
        """Take a sample of each entity now and draw it.

        Raises:
            ConfigurationError: there is no such entity.
        """
        with self._sampling:
            samples = self._sampler.sample()
            for each in samples:
                self._history.setdefault(each.entity, deque(maxlen=_KEPT)).append(each)
        self.chart.send({"kind": "samples", "points": [_point(each) for each in samples]})
        self._lines.value = "\n".join(map(_line, samples))
        return samples

    def use_plain(self, plain: bool = True) -> None:
        """Say the latest numbers in words instead of drawing lines, for where these do not appear, or draw them again.

        Whether words are visible is unknown, so samples are taken until it is stopped or closed.
        """
        self._patience.stop()
        self._drawing.children = (self._lines if plain else self.chart,)
        self._is_plain = plain
        self._wake()

    @property
    def is_sampling(self) -> bool:
        """Tell whether samples are being taken from time to time."""
        return self._thread is not None

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
        self._closed = True
        self._wake()
        for part in (self.chart, self._lines):
            part.close()
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
        caption = f"{self._namespace.host} at {when:%Y-%m-%d %H:%M:%S} UTC; ages in s, rates each second, at least"
        return tables.text_table(_HEADERS, [[_shown(sample, name) for name in _HEADERS] for sample in latest], caption)

    # ------------------------------------------------------------------ when samples are taken

    @property
    def _is_due(self) -> bool:
        is_seen = any(time.monotonic() - heard < _FORGOTTEN_AFTER for heard in list(self._views.values()))
        return self._wanted and (self._unseen or self._is_plain or is_seen) and not self._closed

    def _set_wanted(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self.switch.description = "Stop" if wanted else "Start"
        self._say("" if wanted else "Stopped.")
        self._wake()

    def _say(self, words: str) -> None:
        # A sample in progress when it was stopped must not hide that.
        self.status.value = words if self._wanted else "Stopped."

    def _switch(self) -> None:
        if self._wanted:
            self.stop()
        else:
            self._set_wanted(wanted=True)

    def _told(self, _widget: object, content: Any, _buffers: object) -> None:
        if content.get("kind") in ("here", "still"):
            self._views[content["view"]] = time.monotonic()
        if content.get("kind") == "here":
            self._patience.stop()
            if self._is_plain:  # it came late
                self.use_plain(plain=False)
            history = [_point(sample) for samples in list(self._history.values()) for sample in list(samples)]
            self.chart.send({"kind": "history", "points": sorted(history, key=lambda point: point["time"])})
        elif content.get("kind") == "gone":
            self._views.pop(content["view"], None)
        self._wake()

    def _wake(self) -> None:
        """Have the loop look at once whether and how often samples are wanted, and begin it where it is none."""
        with self._changed:
            self._changed.notify_all()
            if self._is_due and self._thread is None:
                self._thread = background.start(self._run, done=self._ended, failed=self._ended)

    def _run(self) -> None:
        while self._is_due:
            is_first = not self._history  # it opens connections, which says nothing of the others
            begin = time.monotonic()
            self._take()
            took = 0.0 if is_first else time.monotonic() - begin
            pause = pause_after(self.every.value, took, self._failures)
            with self._changed:
                self._changed.wait_for(self._is_over(self.every.value), pause)

    def _is_over(self, every: float) -> Any:
        return lambda: not self._is_due or self.every.value != every

    def _ended(self, _: object) -> None:
        self._thread = None
        self._wake()

    def _take(self) -> None:
        try:
            self.sample()
        except Exception as error:  # noqa: BLE001 (it is shown, and the next sample may succeed)
            self._failures += 1
            pause = pause_after(self.every.value, 0.0, self._failures)
            self._say(f"{background.sentence(error)} The next attempt is in {duration_text(pause, rounded=True)}.")
        else:
            self._failures = 0
            self._say(f"as of {datetime.now(UTC):%H:%M:%S} UTC")


def pause_after(every: float, took: float, failures: int) -> float:
    """Return the seconds to the next sample: more if Service Bus is slow, and more with each failure.

    Example:
        >>> pause_after(5, 0.1, 0), pause_after(5, 3, 0), pause_after(5, 0.1, 2), pause_after(5, 0.1, 20)
        (5, 15, 20.0, 300.0)
    """
    if failures:
        return max(every, min(every * 2.0 ** min(failures, 30), _LONGEST_PAUSE))
    return max(every, _SHARE * took)


def _point(sample: Sample) -> dict[str, Any]:
    return {
        "entity": str(sample.entity),
        "time": round(sample.time.timestamp() * 1000),
        "active": sample.active,
        "scheduled": sample.scheduled,
        "dead": sample.dead_letter,
        "transfer": sample.transfer_dead_letter,
        "oldest": sample.oldest_age and round(sample.oldest_age, 1),
        "arrived": sample.arrived and round(sample.arrived, 3),
        "left": sample.left and round(sample.left, 3),
    }


def _line(sample: Sample) -> str:
    parts = [f"{sample.active:,} active", f"{sample.dead_letter:,} dead letters", f"{sample.scheduled:,} later"]
    if sample.oldest_age is not None:
        parts.append(f"the oldest {duration_text(sample.oldest_age, rounded=True)}")
    if sample.arrived is not None and sample.left is not None:
        parts.append(f"at least {sample.arrived:,.1f} in and {sample.left:,.1f} out each second")
    return f"{sample.entity}: {', '.join(parts)}"


def _shown(sample: Sample, name: str) -> object:
    value = getattr(sample, name)
    return f"{value:,.1f}" if isinstance(value, float) else value
