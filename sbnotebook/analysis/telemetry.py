"""From messages to the telemetry of their consumers: traces, Kusto queries, and exceptions by cause.

The trace of a message is in its application properties. ``traceparent`` has the form of W3C Trace Context,
https://www.w3.org/TR/trace-context/#traceparent-header, and so has ``Diagnostic-Id``, the older name of Azure's SDKs:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-end-to-end-tracing. The columns of
telemetry are those of https://learn.microsoft.com/azure/azure-monitor/reference/tables/appexceptions and
``appdependencies``.

Traces are not message columns: the properties already hold them without loss. They are read when they are needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis.arrays import array_of_values
from sbnotebook.errors import DecisionError
from sbnotebook.model.secret_texts import scrub
from sbnotebook.settlement import query_logs

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
_ALIKE: Final = ("Kind", "Name", "Target", "Result", "Role")
_EACH: Final = ("OperationId", "TimeGenerated", "Items", "Text")
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


def trace_columns(properties: Any) -> tuple[Any, Any]:
    """Return the trace ids and the span ids of a column of application properties, null where there is none."""
    kernels: Any = pc
    found: list[tuple[Any, Any]] = []
    for name in _NAMES:
        parts = kernels.extract_regex(kernels.map_lookup(properties, _scalar(name), "first"), _FORM)
        version, trace, span, more = (kernels.struct_field(parts, place) for place in range(4))
        is_right = kernels.and_(_differs(trace, _NO_TRACE), _differs(span, _NO_SPAN))
        # Version ff is invalid, and only later versions than 00 may have more behind the flags.
        is_known = kernels.or_(_differs(version, "00"), kernels.equal(more, _scalar("")))
        is_right = kernels.and_(is_right, kernels.and_(is_known, _differs(version, "ff")))
        found.append(tuple(kernels.if_else(is_right, part, _scalar(None)) for part in (trace, span)))
    (trace, span), (older_trace, older_span) = found
    is_new = kernels.is_valid(trace)
    return kernels.if_else(is_new, trace, older_trace), kernels.if_else(is_new, span, older_span)


def _differs(column: Any, text: str) -> Any:
    kernels: Any = pc
    return kernels.not_equal(column, _scalar(text))


def _scalar(text: str | None) -> Any:
    # Arrow imports pandas to make one of a Python value.
    return array_of_values([text], pa.string())[0]


def traces_of(table: pa.Table) -> list[str | None]:
    """Return the trace id of each message, None where it has none."""
    return trace_columns(table.column(PROPERTIES))[0].to_pylist()


def kql_of(traces: Collection[str], first: datetime | None, until: datetime | None = None) -> str:
    """Return a Kusto query for the exceptions and failed dependencies of operations.

    Nothing that a sender wrote is in it but trace ids, which have 32 hexadecimal digits.
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


def telemetry_of(
    causes: Mapping[str, Sequence[tuple[str, str | None]]],
    first: datetime | None,
    workspace: str,
    *,
    credential: Any = None,
    endpoint: str | None = None,
    until: datetime | None = None,
) -> pd.DataFrame:
    """Run the query of :func:`kql_of` for the traces of causes, and count what it finds by cause.

    A trace may have messages of several causes: its failures count for each of them.
    """
    import pandas as pd

    until = until or datetime.now(UTC)
    query = kql_of(causes, first, until)
    rows, problem = query_logs(workspace, query, _times(first, until), credential, endpoint)
    if len(causes) > _MOST_OPERATIONS or len(rows) >= _MOST_ROWS or problem:
        asked, limit = _counted(causes), f"Only the first {_MOST_ROWS:,} rows." if len(rows) >= _MOST_ROWS else ""
        warnings.warn(" ".join(filter(None, (f"The telemetry of {asked}.", limit, problem))), stacklevel=3)
    joined = [
        [*cause, *(scrub(str(row[name]), _MAX_TEXT) for name in _ALIKE), *(row[name] for name in _EACH)]
        for row in rows
        for cause in causes.get(row["OperationId"], ())
    ]
    keys = ["cause", "reason", *(name.lower() for name in _ALIKE)]
    frame = pd.DataFrame(joined, columns=pd.Index([*keys, *_EACH]))
    frame["Text"] = [scrub(str(text), _MAX_TEXT) for text in frame["Text"]]
    found: Any = frame.groupby(keys, dropna=False, sort=False)
    counted = found.agg(
        count=("Items", "sum"),
        operations=("OperationId", "nunique"),
        first=("TimeGenerated", "min"),
        last=("TimeGenerated", "max"),
        text=("Text", "first"),
    )
    return counted.reset_index().sort_values("count", ascending=False, ignore_index=True, kind="stable")


def _times(first: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    until = until or datetime.now(UTC)
    # A consumer may fail long after a message was enqueued, but not later than now.
    return (first or until).astimezone(UTC) - _BEFORE, until.astimezone(UTC)


def _counted(traces: Collection[str]) -> str:
    count = f"{len(traces):,} operation{'s' if len(traces) != 1 else ''}"
    return count if len(traces) <= _MOST_OPERATIONS else f"the first {_MOST_OPERATIONS:,} of {count}"
