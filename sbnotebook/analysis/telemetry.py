"""From messages to the telemetry of their consumers: traces, Kusto queries, and exceptions by cause.

The trace of a message is in its application properties. ``traceparent`` has the form of W3C Trace Context,
https://www.w3.org/TR/trace-context/#traceparent-header, and so has ``Diagnostic-Id``, the older name of Azure's SDKs:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-end-to-end-tracing. The columns of
telemetry are those of https://learn.microsoft.com/azure/azure-monitor/reference/tables/appexceptions and
``appdependencies``.

Traces are not message columns: the properties already hold them without loss. They are read when they are needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, overload

import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis.arrays import array_of_values
from sbnotebook.analysis.shown import Shown, Table, without_empty
from sbnotebook.errors import DecisionError
from sbnotebook.settlement import query_logs, scrub

if TYPE_CHECKING:
    import pandas as pd

PROPERTIES: Final = "application_properties"
TRACE_COLUMNS: Final = ("trace_id", "span_id")
"""The columns that ``where`` and SQL have besides the message columns."""
_NAMES: Final = ("traceparent", "Diagnostic-Id")
"""The properties, the better first, as the instructions for Azure's SDKs say."""
_FORM: Final = r"\A(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}(?P<more>-.*)?\z"
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_MOST_OPERATIONS: Final = 1_000
_MOST_ROWS: Final = 10_000
_BEFORE: Final = timedelta(hours=1)
"""Operations of a message begin before it was enqueued."""
_MAX_TEXT: Final = 1_000
_Key: TypeAlias = tuple[str, str | None, str, str, str, str, str]
_ALIKE: Final = ("Kind", "Name", "Target", "Result", "Role")
_HEADERS: Final = ("cause", "reason", "kind", "name", "target", "result", "role", "count", "first", "last", "text")
_QUERY: Final = """\
// {said}
let operations = dynamic([{operations}]);
let since = datetime({since});
let until = datetime({until});
union
    (AppExceptions
    | where TimeGenerated between (since .. until) and OperationId in (operations)
    | project TimeGenerated, OperationId, Kind = "exception", Name = ExceptionType, Target = Method, Result = "",
        Text = OuterMessage, Role = AppRoleName, Items = ItemCount),
    (AppDependencies
    | where TimeGenerated between (since .. until) and OperationId in (operations) and Success == false
    | project TimeGenerated, OperationId, Kind = "dependency", Name, Target, Result = ResultCode,
        Text = "", Role = AppRoleName, Items = ItemCount)
| top {rows} by TimeGenerated asc"""


class Traced(Protocol):
    """A group of messages with traces."""

    @property
    def fingerprint(self) -> str: ...  # noqa: D102 (as of a group)
    @property
    def reason(self) -> str | None: ...  # noqa: D102
    @property
    def first_seen(self) -> datetime | None: ...  # noqa: D102
    @property
    def traces(self) -> tuple[str, ...]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class FailedOperation:
    """Exceptions, or failed dependencies, of the operations of a cause.

    Args:
        cause: the fingerprint of the cause.
        reason: its dead-letter reason.
        kind: ``exception`` or ``dependency``.
        name: the type of the exception, or the name of the dependency.
        target: the method that raised the exception, or the target of the dependency.
        result: the result code of the dependency.
        role: the application.
        count: how many, those that sampling left out included.
        operations: the number of operations that they are of.
        first: when the first happened.
        last: when the last happened.
        text: the message of the first exception.
    """

    cause: str
    reason: str | None
    kind: str
    name: str
    target: str
    result: str
    role: str
    count: int
    operations: int
    first: datetime
    last: datetime
    text: str


class Telemetry(Shown, Sequence[FailedOperation]):
    """The exceptions and failed dependencies behind causes, the most frequent first. Shown as a table.

    Args:
        failures: the rows.
        note: which operations were asked for.
    """

    _one_line = False

    def __init__(self, failures: Iterable[FailedOperation], note: str = "") -> None:
        self._failures = tuple(failures)
        self._note = note

    @property
    def summary(self) -> str:
        """Return how many failures there are, and which operations were asked for."""
        count = sum(each.count for each in self)
        return f"{count:,} exceptions and failed dependencies of {self._note}"

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with a row for each kind of failure of a cause, and the fields of it as columns."""
        import pandas as pd

        names = [each.name for each in fields(FailedOperation)]
        return pd.DataFrame([[getattr(each, name) for name in names] for each in self], columns=pd.Index(names))

    def _table(self, most: int) -> Table:
        rows = [[getattr(each, name) or None for name in _HEADERS] for each in self[:most]]
        return *without_empty(_HEADERS, rows), self.summary

    def __len__(self) -> int:
        return len(self._failures)

    @overload
    def __getitem__(self, index: int) -> FailedOperation: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FailedOperation, ...]: ...
    def __getitem__(self, index: int | slice) -> FailedOperation | tuple[FailedOperation, ...]:
        return self._failures[index]

    def __iter__(self) -> Iterator[FailedOperation]:
        return iter(self._failures)


def trace_columns(properties: Any) -> tuple[Any, Any]:
    """Return the trace ids and the span ids of a column of application properties, null where there is none.

    Example:
        >>> import pyarrow as pa
        >>> ours = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
        >>> traces, spans = trace_columns(pa.array([ours, []], pa.map_(pa.string(), pa.string())))
        >>> traces.to_pylist(), spans.to_pylist()
        (['0af7651916cd43dd8448eb211c80319c', None], ['b7ad6b7169203331', None])
    """
    kernels: Any = pc
    found: list[tuple[Any, Any]] = []
    for name in _NAMES:
        parts = kernels.extract_regex(kernels.map_lookup(properties, name, "first"), _FORM)
        version, trace, span, more = (kernels.struct_field(parts, place) for place in range(4))
        is_right = kernels.and_(kernels.not_equal(trace, _NO_TRACE), kernels.not_equal(span, _NO_SPAN))
        # Version ff is invalid, and only later versions than 00 may have more behind the flags.
        is_known = kernels.or_(kernels.not_equal(version, "00"), kernels.equal(more, ""))
        is_right = kernels.and_(is_right, kernels.and_(is_known, kernels.not_equal(version, "ff")))
        found.append(tuple(kernels.if_else(is_right, part, None) for part in (trace, span)))
    (trace, span), (older_trace, older_span) = found
    is_new = kernels.is_valid(trace)
    return kernels.if_else(is_new, trace, older_trace), kernels.if_else(is_new, span, older_span)


def traces_of(messages: Sequence[Any] | pa.Table) -> list[str | None]:
    """Return the trace id of each message, None where it has none."""
    if isinstance(messages, pa.Table):
        return trace_columns(messages.column(PROPERTIES))[0].to_pylist()
    own = [[(name, str(each.application_properties.get(name, ""))) for name in _NAMES] for each in messages]
    return trace_columns(array_of_values(own, pa.map_(pa.string(), pa.string())))[0].to_pylist()


def kql_of(traces: Collection[str], first: datetime | None, until: datetime | None = None) -> str:
    """Return a Kusto query for the exceptions and failed dependencies of operations.

    Nothing that a sender wrote is in it but trace ids, which have 32 hexadecimal digits.

    Raises:
        DecisionError: there are no traces.
    """
    if not traces:
        raise DecisionError(
            "None of these messages has a trace: their senders set neither traceparent nor Diagnostic-Id. "
            "Turn on distributed tracing in the sender."
        )
    since, until = _times(first, until)
    shown = list(traces)[:_MOST_OPERATIONS]
    return _QUERY.format(
        said=f"Failures of {_counted(traces)}, in a Log Analytics workspace",
        operations=", ".join(f'"{trace}"' for trace in shown),
        since=since.strftime("%Y-%m-%dT%H:%M:%SZ"),
        until=until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        rows=_MOST_ROWS,
    )


def kql_of_groups(groups: Iterable[Traced], until: datetime | None = None) -> str:
    """Return the query of :func:`kql_of` for the operations of groups."""
    found = list(groups)
    return kql_of(_traces(found), _first(found), until)


def telemetry_of(
    groups: Iterable[Traced],
    workspace: str,
    *,
    credential: Any = None,
    endpoint: str | None = None,
    until: datetime | None = None,
) -> Telemetry:
    """Run the query of :func:`kql_of_groups`, and count what it finds by cause."""
    found = list(groups)
    until = until or datetime.now(UTC)
    traces, first = _traces(found), _first(found)
    query = kql_of(traces, first, until)
    rows, problem = query_logs(workspace, query, _times(first, until), credential=credential, endpoint=endpoint)
    causes: defaultdict[str, list[Traced]] = defaultdict(list)
    for group in found:
        for trace in group.traces:
            causes[trace].append(group)
    # A trace may have messages of several causes; its failures then count for each of them.
    together: defaultdict[_Key, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        for group in causes.get(str(row["OperationId"]), ()):
            kind, name, target, result, role = (_text(row[name]) for name in _ALIKE)
            together[group.fingerprint, group.reason, kind, name, target, result, role].append(row)
    failures = [_failure(key, alike) for key, alike in together.items()]
    ends = [f"Only the first {_MOST_ROWS:,} rows."] * (len(rows) >= _MOST_ROWS) + [problem or ""]
    note = " ".join(filter(None, [f"{_counted(traces)}.", *ends]))
    return Telemetry(sorted(failures, key=lambda each: (-each.count, each.cause, each.name)), note)


def _failure(key: _Key, rows: Sequence[dict[str, Any]]) -> FailedOperation:
    times = [row["TimeGenerated"] for row in rows]
    operations = len({row["OperationId"] for row in rows})
    count = sum(int(row["Items"] or 1) for row in rows)
    return FailedOperation(*key, count, operations, min(times), max(times), _text(rows[0]["Text"]))


def _text(value: Any) -> str:
    return scrub("" if value is None else str(value), _MAX_TEXT)


def _traces(groups: Iterable[Traced]) -> list[str]:
    return list(dict.fromkeys(trace for group in groups for trace in group.traces))


def _first(groups: Iterable[Traced]) -> datetime | None:
    return min((group.first_seen for group in groups if group.traces and group.first_seen), default=None)


def _times(first: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    until = until or datetime.now(UTC)
    # A consumer may fail long after a message was enqueued, but not later than now.
    return (first or until).astimezone(UTC) - _BEFORE, until.astimezone(UTC)


def _counted(traces: Collection[str]) -> str:
    count = f"{len(traces):,} operation{'s' if len(traces) != 1 else ''}"
    return count if len(traces) <= _MOST_OPERATIONS else f"the first {_MOST_OPERATIONS:,} of {count}"
