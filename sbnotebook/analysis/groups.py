"""Group messages by what went wrong with them, and chart the groups with plotly.

Plotly reads a few HTML tags and formulas in texts. Labels come from messages, so they are escaped: plotly draws a
reason ``<b>late</b>`` as it was written.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache, partial
from itertools import repeat
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis import tables
from sbnotebook.analysis.decoders import DECODE_ERROR
from sbnotebook.analysis.descriptions import (
    ANY_GUID,
    DIGITS_TO_ONES,
    NO_GUID,
    Cause,
    cause_of,
    cause_of_form,
    form_without_ids,
    kql_of,
    masked_reason,
    telemetry_of,
    traces_of,
)
from sbnotebook.analysis.frames import to_arrow, values_of_column
from sbnotebook.analysis.json_columns import drifts_of
from sbnotebook.analysis.page_columns import array_of_values
from sbnotebook.analysis.shapes import fault_of, header_names
from sbnotebook.analysis.tables import ShownRows, Table
from sbnotebook.errors import ConfigurationError, near_match
from sbnotebook.model import ReceivedMessage
from sbnotebook.model.budget import CAUSE_SECONDS_OF_TABLE, MATCHED_CHARACTERS
from sbnotebook.model.report import counted

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

Trait = Literal["reason", "description", "frame", "subject", "source", "schema"]
"""A trait that the messages of a group have in common."""
TRAITS: Final[tuple[Trait, ...]] = ("reason", "description", "frame", "subject", "source", "schema")
CAUSE: Final[tuple[Trait, ...]] = ("reason", "description", "frame")
"""The traits that messages of a group share by default. The frame is of the stack trace in the description."""
Take = Callable[[Sequence[int]], Sequence[ReceivedMessage]]
"""Returns the messages in some places."""

_KEPT: Final = 1_000
_AT_ONCE: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_kernels: Final[Any] = pc
SUB_QUEUE: Final = "/$"
"""A part of the address of each dead-letter queue, and of no other."""
_COLUMNS: Final = (
    "sequence_number",
    "enqueued_time",
    "subject",
    "dead_letter_reason",
    "dead_letter_error_description",
    "dead_letter_source",
    "entity",
    "resubmit_count",
)

_SHOWN: Final = (
    "count",
    "reason",
    "cause",
    "frame",
    "subject",
    "source",
    "schema",
    "first_seen",
    "last_seen",
    "came_back",
    "trace",
    "fingerprint",
)


@dataclass(frozen=True, slots=True, repr=False)
class Group:
    """Messages with the same cause. A trait that they were not grouped by is None.

    Args:
        fingerprint: of the traits: the same in each run, on each machine.
        reason: the dead-letter reason, long numbers and ids masked.
        cause: their descriptions, masked where they differ, without stack traces.
        frame: where in the application it happened, from a stack trace in the description.
        subject: their subject.
        source: the entity in which they were dead-lettered, or else the one that they are in.
        schema: how their JSON bodies differ from the most frequent form of their subject.
        count: how many they are.
        first_seen: when the first was enqueued.
        last_seen: when the last was enqueued.
        subjects: the most frequent subjects, with their counts.
        sequence_numbers: of all its messages.
        examples: a few of their descriptions, as they are.
        came_back: how often the dead letter that came back most often was resubmitted.
        traces: the trace ids of its messages, each once.
        take: returns the messages themselves.
    """

    fingerprint: str
    reason: str | None
    cause: str | None
    frame: str | None
    subject: str | None
    source: str | None
    schema: str | None
    count: int
    first_seen: datetime | None
    last_seen: datetime | None
    subjects: tuple[tuple[str | None, int], ...]
    sequence_numbers: tuple[int, ...]
    examples: tuple[str, ...]
    came_back: int = 0
    traces: tuple[str, ...] = ()
    take: Callable[[], Sequence[ReceivedMessage]] = field(default=tuple, repr=False, compare=False)

    @property
    def messages(self) -> Sequence[ReceivedMessage]:
        """Return the messages themselves, of all that were grouped; these stay in memory as long as the group does."""
        return self.take()

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with one row, and the fields of the group as columns."""
        return Groups((self,)).to_pandas()

    @property
    def trace(self) -> str | None:
        """Return a trace id and the number of the others, for tables; None where there is none."""
        return (
            f"{self.traces[0]} and {len(self.traces) - 1:,} more" if self.traces[1:] else "".join(self.traces) or None
        )

    def kql(self, *, until: datetime | None = None) -> str:
        """Return a Kusto query for the telemetry of these messages: see :meth:`Groups.kql`."""
        return Groups((self,)).kql(until=until)

    def __repr__(self) -> str:
        traits = {"reason": self.reason, "cause": self.cause, "frame": self.frame, "subject": self.subject}
        said = ", ".join(f"{name} {value[:100]!r}" for name, value in traits.items() if value)
        return f"<Group {self.fingerprint} of {counted(self.count)}{f': {said}' if said else ''}>"

    def _repr_html_(self) -> str:
        return Groups((self,)).as_html()


class Groups(ShownRows[Group]):
    """Groups of messages, the largest first. Shown as a table in a notebook and as text elsewhere.

    Args:
        groups: the groups.
    """

    _fields = tuple(each.name for each in fields(Group) if each.repr)

    def plot(self, *, top: int = 20) -> Figure:
        """Draw how many messages each cause has, as a plotly figure."""
        return groups_figure(self, top)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with a row for each group, and the fields of :class:`Group` as columns."""
        import pandas as pd

        frame = super().to_pandas()
        for name in ("first_seen", "last_seen"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        return frame.astype({"count": "int64"})

    def kql(self, *, until: datetime | None = None) -> str:
        """Return a Kusto query for the exceptions and failed dependencies behind these causes.

        Run it in the Logs of the workspace of Application Insights. It names up to 1,000 operations, and begins an hour
        before the first of these messages was enqueued; None for ``until`` is now. Without a trace, it raises
        DecisionError.

        Example:
            >>> print(connect("emulator").entity("orders/$dlq").peek().groups()[0].kql())  # doctest: +SKIP
        """
        return kql_of(self._by_trace(), self._first(), until)

    def telemetry(
        self, workspace: str, *, credential: Any = None, endpoint: str | None = None, until: datetime | None = None
    ) -> pd.DataFrame:
        """Run the query of :meth:`kql`, which sends trace ids and times to Azure Monitor. It needs ``[telemetry]``.

        Args:
            workspace: the workspace ID, a GUID, of the Log Analytics workspace of Application Insights.
            credential: a synchronous token credential of azure.identity; None for its DefaultAzureCredential. The
                account needs the role Log Analytics Reader.
            endpoint: of another cloud, such as ``https://api.loganalytics.us``.
            until: the end of the times; None for now.

        Returns:
            A frame with a row for each kind of failure of a cause, the most frequent first. ``kind`` is ``exception``
            or ``dependency``, and ``count`` includes those that sampling left out. A warning says if some are missing.

        Raises:
            DecisionError: no message has a trace.
            azure.core.exceptions.AzureError: Azure Monitor refused the query, or was not reached.

        Example:
            >>> causes = connect("emulator").entity("orders/$dlq").peek().groups()  # doctest: +SKIP
            >>> causes.telemetry("3f2a7c1e-0d5b-4e7a-9c44-1b2f6d8e9a10")  # doctest: +SKIP
        """
        return telemetry_of(
            self._by_trace(), self._first(), workspace, credential=credential, endpoint=endpoint, until=until
        )

    def _by_trace(self) -> dict[str, list[tuple[str, str | None]]]:
        found: dict[str, list[tuple[str, str | None]]] = {}
        for group in self:
            for trace in group.traces:
                found.setdefault(trace, []).append((group.fingerprint, group.reason))
        return found

    def _first(self) -> datetime | None:
        return min((group.first_seen for group in self if group.traces and group.first_seen), default=None)

    def _table(self, most: int) -> Table:
        return *tables.used_columns(_SHOWN, self[:most]), tables.counted_rows("group", len(self), most)


class CauseReader:
    """Reads the causes of the messages of a table, until their budget of time is spent."""

    def __init__(self, seconds: float = CAUSE_SECONDS_OF_TABLE, clock: Callable[[], float] = thread_time) -> None:
        self._left = seconds
        self._clock = clock
        # The same description often comes again, word by word.
        self._known = lru_cache(maxsize=_KEPT)(self._read)
        self._forms: dict[bytes, Cause | None] = {}

    def __call__(self, description: str | None) -> Cause:
        is_spent = self._left <= 0
        return Cause("(not read: the time for causes is spent)", None) if is_spent else self._known(description)

    def all(self, descriptions: Sequence[str | None], column: Any = None) -> list[Cause]:
        """Return the cause that each description names.

        Descriptions often differ only in ids and numbers. This method gives each a form without them, and reads the
        cause once for each form.
        """
        texts = array_of_values(descriptions, pa.string()) if column is None else column
        causes: list[Cause] = []
        for start in range(0, len(descriptions), _AT_ONCE):
            part, forms = descriptions[start : start + _AT_ONCE], _forms(texts[start : start + _AT_ONCE])
            causes += [self._of_form(form, said) for form, said in zip(forms, part, strict=True)]
        return causes

    def _of_form(self, form: bytes | None, description: str | None) -> Cause:
        if form is None or self._left <= 0:
            return self(description)
        if form not in self._forms:
            started = self._clock()
            form = form_without_ids(form)
            if form not in self._forms:
                if len(self._forms) >= _KEPT:
                    self._forms.clear()
                self._forms[form] = cause_of_form(form.decode())
            self._left -= self._clock() - started
        return self._forms[form] or self(description)

    def _read(self, description: str | None) -> Cause:
        started = self._clock()
        cause = cause_of(description)
        self._left -= self._clock() - started
        return cause


def _forms(texts: Any) -> list[bytes | None]:
    """Return the forms of descriptions, as far as descriptions are read: see :func:`cause_of_form`."""
    if (_kernels.max(_kernels.binary_length(texts)).as_py() or 0) > MATCHED_CHARACTERS:
        texts = _kernels.utf8_slice_codeunits(texts, 0, MATCHED_CHARACTERS)
    without = _kernels.replace_substring_regex(texts, ANY_GUID, NO_GUID).cast(pa.binary()).to_pylist()
    return [None if text is None else text.translate(DIGITS_TO_ONES) for text in without]


def group_by_cause(
    messages: Iterable[ReceivedMessage] | pa.Table,
    by: Trait | Sequence[Trait] = CAUSE,
    read: CauseReader | None = None,
    take: Take | None = None,
) -> Groups:
    by = (by,) if isinstance(by, str) else by
    if not by or not set(by) <= set(TRAITS):
        wrong = next((str(each) for each in by if each not in TRAITS), "nothing")
        near = near_match(wrong, TRAITS)
        hint = f" (did you mean {near}?)" if near else ""
        raise ConfigurationError(f"Messages are grouped by some of {', '.join(TRAITS)}, not by {wrong[:80]!r}{hint}.")
    table: Any = messages
    if not isinstance(messages, pa.Table):
        held = tuple(messages)
        table, take = to_arrow(held), take or (lambda places: [held[place] for place in places])
    found: dict[tuple[str | None, ...], list[tuple[int, _Row]]] = {}
    traces, needs_causes = traces_of(table), "description" in by or "frame" in by
    own = [*map(_Row._make, zip(*(values_of_column(table.column(name)) for name in _COLUMNS), strict=True))]
    rows = _with_faults(table, own)
    column = table.column("dead_letter_error_description") if rows is own else None
    read = read or CauseReader()
    causes = read.all([row.description for row in rows], column) if needs_causes else repeat(Cause("", None))
    drifts = _drifts(table) if "schema" in by else repeat(None)
    reason_of = cache(masked_reason)
    for place, (row, cause, drift) in enumerate(zip(rows, causes, drifts, strict=False)):
        traits = (
            reason_of(row.reason) if "reason" in by and row.reason is not None else None,
            cause.text if "description" in by else None,
            cause.frame if "frame" in by else None,
            row.subject if "subject" in by else None,
            (row.dead_letter_source or row.entity) if "source" in by else None,
            drift,
        )
        found.setdefault(traits, []).append((place, row))
    groups = [_group(traits, placed, take, traces) for traits, placed in found.items()]
    return Groups(
        sorted(groups, key=lambda group: (-group.count, group.reason or "", group.cause or "", group.fingerprint))
    )


class _Row(NamedTuple):
    sequence_number: int
    enqueued_time: datetime | None
    subject: str | None
    reason: str | None
    description: str | None
    dead_letter_source: str | None
    entity: str
    resubmit_count: int | None


def _with_faults(table: Any, rows: list[_Row]) -> list[_Row]:
    """Return the rows with the faults that frameworks have written into the properties; the rows themselves of none."""
    column = table.column("application_properties")
    names = array_of_values(header_names(), pa.string())
    # Part by part: together they would be copied, with the stack traces that are among the properties.
    if not any(_kernels.any(_kernels.is_in(part.keys, names)).as_py() for part in column.chunks):
        return rows
    pairs = zip(rows, column.to_pylist(), strict=True)
    faults = [fault_of(row.reason, row.description, dict(own or ())) for row, own in pairs]
    if all(fault == (row.reason, row.description) for row, fault in zip(rows, faults, strict=True)):
        return rows
    return [row._replace(reason=why, description=what) for row, (why, what) in zip(rows, faults, strict=True)]


def _group(
    traits: tuple[str | None, ...], placed: Sequence[tuple[int, _Row]], take: Take | None, traces: Sequence[str | None]
) -> Group:
    rows = [row for _, row in placed]
    places = array("q", [place for place, _ in placed])
    times = [row.enqueued_time for row in rows if row.enqueued_time is not None]
    descriptions = dict.fromkeys(row.description for row in rows if row.description)
    named = json.dumps(traits if traits[-1] is not None else traits[:-1])  # as without bodies
    return Group(
        hashlib.sha256(named.encode()).hexdigest()[:12],
        *traits,
        count=len(rows),
        first_seen=min(times, default=None),
        last_seen=max(times, default=None),
        subjects=tuple(Counter(row.subject for row in rows).most_common(5)),
        sequence_numbers=tuple(row.sequence_number for row in rows),
        examples=tuple(descriptions)[:3],
        # A clone that waits for its first delivery has not come back.
        came_back=max((row.resubmit_count or 0 for row in rows if SUB_QUEUE in (row.entity or "")), default=0),
        traces=tuple(dict.fromkeys(filter(None, (traces[place] for place in places)))),
        take=partial(take, places) if take else tuple,
    )


def _drifts(table: Any) -> list[str]:
    drifts = drifts_of(table.column("subject").to_pylist(), table.column("body_text").to_pylist())
    errors = table.column(DECODE_ERROR).to_pylist() if DECODE_ERROR in table.column_names else repeat(None)
    return [drift if error is None else f"not decoded: {error}" for drift, error in zip(drifts, errors, strict=False)]


# ---------------------------------------------------------------- charts

_MAX_LABEL: Final = 70
_MOST_BARS: Final = 60
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_WIDTHS: Final = (
    *(1, 5, 15, 30, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY),
)
_READ_BY_PLOTLY: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})
_ROW_HEIGHT: Final = 34
_FIRST_SECOND: Final = int((datetime.min.replace(tzinfo=UTC) - _EPOCH).total_seconds())
_LAST_SECOND: Final = int((datetime.max.replace(microsecond=0, tzinfo=UTC) - _EPOCH).total_seconds())


def messages_figure(table: pa.Table, by: Trait = "reason", top: int = 8) -> Figure:
    # The most frequent values have their own colour. Labels do not tell them apart: two may read the same when cut.
    rows = _times_and_values(table, by)
    own = [value for value, _ in Counter(value for _, value in rows).most_common(top)]
    colours = {value: colour for colour, value in enumerate(own)}
    # Count the messages of each colour in bars of the same width; the last colour is that of the others.
    times = [time for time, _ in rows] or [_EPOCH]
    least = (max(times) - min(times)).total_seconds() / _MOST_BARS
    width = _WIDTHS[min(bisect_left(_WIDTHS, least), len(_WIDTHS) - 1)]
    in_bars: list[Counter[int]] = [Counter() for _ in range(len(own) + 1)]
    for time, value in rows:
        in_bars[colours.get(value, len(own))][int((time - _EPOCH).total_seconds()) // width] += 1
    figure = _figure(f"{counted(len(rows))} over time, by {by}", "enqueued (UTC)", "messages")
    for name, bars in zip([*map(label, own), "others"], in_bars, strict=True):
        if bars:
            figure.add_bar(
                name=name,
                x=[_middle(place, width) for place in sorted(bars)],
                y=[bars[place] for place in sorted(bars)],
                width=width * 1_000,
            )
    return figure.update_layout(barmode="stack", showlegend=True)


def groups_figure(groups: Sequence[Group], top: int = 20) -> Figure:
    shown = groups[:top]
    rest = f", the {top} largest" if len(groups) > top else ""
    figure = _figure(f"{counted(sum(group.count for group in groups))} by cause{rest}", "messages", "")
    parts = [(group.reason, group.cause or group.frame, group.subject) for group in shown]
    names = [label(" · ".join(filter(None, each))) for each in parts]
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


def timeline_figure(rows: Sequence[tuple[str, datetime, str]]) -> Figure:
    figure = _figure(f"{counted(len(rows))} over time", "enqueued (UTC)", "")
    places = list(dict.fromkeys(place for place, _, _ in rows))
    figure.add_scatter(
        x=[time for _, time, _ in rows],
        y=[places.index(place) for place, _, _ in rows],
        mode="markers+lines",
        hovertext=[said for _, _, said in rows],
        hoverinfo="x+text",
    )
    figure.update_yaxes(
        tickvals=list(range(len(places))), ticktext=[*map(label, places)], autorange="reversed", automargin=True
    )
    return figure.update_layout(height=160 + _ROW_HEIGHT * max(1, len(places)), showlegend=False)


def label(text: str | None) -> str:
    """Escape and cut a text of a message, and remove its control characters, so that plotly draws it as it is.

    Example:
        >>> label("<b>late</b> & $x$")
        '&lt;b&gt;late&lt;/b&gt; &amp; &#36;x&#36;'
    """
    if not text:
        return "(none)"
    shown = tables.printable(text[: _MAX_LABEL + 1])
    cut = shown if len(shown) <= _MAX_LABEL else f"{shown[: _MAX_LABEL - 1]}…"
    return cut.translate(_READ_BY_PLOTLY)


def _middle(place: int, width: int) -> datetime:
    """Return the middle of a bar, within the years that Python has."""
    return _EPOCH + timedelta(seconds=min(max((place + 0.5) * width, _FIRST_SECOND), _LAST_SECOND))


def _times_and_values(table: pa.Table, by: Trait) -> list[tuple[datetime, str | None]]:
    values: dict[int, str | None] = {}
    for group in group_by_cause(table, by, take=cast("Any", list)):
        value = group.cause if by == "description" else getattr(group, by)
        values |= dict.fromkeys(cast("Any", group.messages), value or None)
    times = values_of_column(table.column("enqueued_time"))
    return [(time, values[place]) for place, time in enumerate(times) if time is not None]


def _hover(group: Group) -> str:
    said = {"reason": group.reason, "cause": group.cause, "frame": group.frame, "subject": group.subject}
    seen = [f"{time:%Y-%m-%d %H:%M:%S}" for time in (group.first_seen, group.last_seen) if time is not None]
    lines = [f"{counted(group.count)}", *(f"{name}: {label(text)}" for name, text in said.items() if text)]
    return "<br>".join([*lines, f"seen {' to '.join(seen)} UTC" if seen else ""])


def _figure(title: str, across: str, up: str) -> Any:
    from plotly.graph_objects import Figure

    return Figure(
        layout={
            "title": {"text": title},
            "template": "plotly_white",
            "xaxis": {"title": {"text": across}},
            "yaxis": {"title": {"text": up}, "rangemode": "tozero"},
            "margin": {"t": 60, "r": 20},
        }
    )
