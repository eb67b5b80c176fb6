"""Charts of messages and of their causes, drawn by plotly.

Plotly reads a few HTML tags and formulas in texts. Labels come from messages, so all that it would read is escaped, and
a reason ``<b>late</b>`` is drawn as it was written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.analysis.groups import Group, Trait, group_by_cause
from sbnotebook.analysis.tables import printable

if TYPE_CHECKING:
    import pyarrow as pa
    from plotly.graph_objects import Figure

__all__ = ["groups_figure", "label", "messages_figure", "width_of_bars"]

_NONE: Final = "(none)"
_OTHERS: Final = "others"
_MAX_LABEL: Final = 70
_MOST_BARS: Final = 60
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_WIDTHS: Final = (
    *(1, 5, 15, 30, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY),
)
_READ_BY_PLOTLY: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROW_HEIGHT: Final = 34
_TEMPLATE: Final = "plotly_white"
_PLACE_AND_TIME: Final = ("entity", "sequence_number", "enqueued_time")


def messages_figure(table: pa.Table, by: Trait = "reason", top: int = 8) -> Figure:
    """Messages over the time at which they were enqueued, stacked by what went wrong with them.

    Args:
        table: with all message columns.
        by: what the colours tell apart: ``reason``, ``description``, ``frame``, ``subject`` or ``source``.
        top: how many have a colour of their own; the rest are others.
    """
    rows = _labelled_times(table, by)
    counts = Counter(name for _, name in rows)
    own = {name for name, _ in counts.most_common(top)}
    width = width_of_bars(min(rows)[0], max(rows)[0]) if rows else 1
    figure = _figure(f"{_counted(len(rows))} over time, by {by}", "enqueued (UTC)", "messages")
    for name in [*(name for name, _ in counts.most_common(top)), *([_OTHERS] if len(counts) > top else [])]:
        bars = Counter(
            int((time - _EPOCH).total_seconds()) // width
            for time, each in rows
            if each == name or (name == _OTHERS and each not in own)
        )
        figure.add_bar(
            name=name,
            x=[_EPOCH + timedelta(seconds=(place + 0.5) * width) for place in sorted(bars)],
            y=[bars[place] for place in sorted(bars)],
            width=width * 1_000,
        )
    return figure.update_layout(barmode="stack", showlegend=True)


def groups_figure(groups: Sequence[Group], top: int = 20) -> Figure:
    """How many messages each cause has, the largest on top.

    Args:
        groups: the largest first.
        top: how many are drawn.
    """
    shown = groups[:top]
    rest = f", the {top} largest" if len(groups) > top else ""
    figure = _figure(f"{_counted(sum(group.count for group in groups))} by cause{rest}", "messages", "")
    names = [_words(group) for group in shown]
    places = list(range(len(shown)))
    figure.add_bar(
        x=[group.count for group in shown],
        # By place and not by name: two causes may read the same when they are cut.
        y=places,
        orientation="h",
        text=[f"{group.count:,}" for group in shown],
        hovertext=[_hover(group) for group in shown],
        hoverinfo="text",
        width=0.7,
    )
    figure.update_yaxes(tickvals=places, ticktext=names, autorange="reversed", automargin=True)
    return figure.update_layout(height=120 + _ROW_HEIGHT * max(1, len(shown)), showlegend=False)


def label(text: str | None) -> str:
    """A text of a message as plotly draws it unread: escaped, cut, and without control characters.

    Example:
        >>> label("<b>late</b> & $x$")
        '&lt;b&gt;late&lt;/b&gt; &amp; &#36;x&#36;'
    """
    if not text:
        return _NONE
    shown = printable(text[: _MAX_LABEL + 1])
    cut = shown if len(shown) <= _MAX_LABEL else f"{shown[: _MAX_LABEL - 1]}…"
    return cut.translate(_READ_BY_PLOTLY)


def width_of_bars(first: datetime, last: datetime) -> int:
    """A width of bars, in seconds, with which a span has 60 of them at most.

    Example:
        >>> width_of_bars(datetime(2013, 1, 1), datetime(2013, 1, 2))
        1800
    """
    least = (last - first).total_seconds() / _MOST_BARS
    return _WIDTHS[min(bisect_left(_WIDTHS, least), len(_WIDTHS) - 1)]


def _labelled_times(table: pa.Table, by: Trait) -> list[tuple[datetime, str]]:
    """The time of each message that has one, with the label of what it is told apart by."""
    untyped: Any = table
    entities, numbers, times = (untyped.column(name).to_pylist() for name in _PLACE_AND_TIME)
    found: list[tuple[datetime, str]] = []
    for entity in dict.fromkeys(entities):  # a sequence number means one message in one entity
        rows = [row for row, each in enumerate(entities) if each == entity]
        groups = group_by_cause(untyped.take(rows), (by,))
        names = {number: label(_value(group, by)) for group in groups for number in group.sequence_numbers}
        found += [(times[row], names[numbers[row]]) for row in rows if times[row] is not None]
    return found


def _value(group: Group, by: Trait) -> str | None:
    return group.cause if by == "description" else getattr(group, by)


def _words(group: Group) -> str:
    parts = [part for part in (group.reason, group.cause or group.frame, group.subject) if part]
    return label(" · ".join(parts))


def _hover(group: Group) -> str:
    said = {"reason": group.reason, "cause": group.cause, "frame": group.frame, "subject": group.subject}
    seen = [f"{time:%Y-%m-%d %H:%M:%S}" for time in (group.first_seen, group.last_seen) if time is not None]
    lines = [f"{_counted(group.count)}", *(f"{name}: {label(text)}" for name, text in said.items() if text)]
    return "<br>".join([*lines, f"seen {' to '.join(seen)} UTC" if seen else ""])


def _counted(count: int) -> str:
    return f"{count:,} message{'s' if count != 1 else ''}"


def _figure(title: str, across: str, up: str) -> Any:
    from plotly.graph_objects import Figure

    return Figure(
        layout={
            "title": {"text": title},
            "template": _TEMPLATE,
            "xaxis": {"title": {"text": across}},
            "yaxis": {"title": {"text": up}, "rangemode": "tozero"},
            "margin": {"t": 60, "r": 20},
        }
    )
