"""Query the telemetry of applications in a Log Analytics workspace, by Microsoft's own client."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from sbnotebook.errors import ConfigurationError, MissingExtraError
from sbnotebook.settlement.connecting.connection import scrub

_SERVER_SECONDS: Final = 60
_MAX_PROBLEM: Final = 300


class LogRows(NamedTuple):
    """The result of a query: its rows, by the names of the columns, and the problem that made it partial."""

    rows: Sequence[dict[str, Any]]
    problem: str | None


def query_logs(
    workspace: str,
    query: str,
    times: tuple[datetime, datetime],
    *,
    credential: Any = None,
    endpoint: str | None = None,
) -> LogRows:
    """Run a Kusto query in a Log Analytics workspace.

    Args:
        workspace: the workspace ID, a GUID.
        query: the query.
        times: Azure Monitor reads only telemetry between these.
        credential: a synchronous token credential; None for azure.identity's DefaultAzureCredential.
        endpoint: of the query service, None for Azure's public cloud.

    Raises:
        ConfigurationError: the workspace is not a GUID.
        MissingExtraError: azure-monitor-query is not installed.
        azure.core.exceptions.AzureError: Azure Monitor refused the query, or was not reached.
    """
    try:
        workspace = str(UUID(workspace))
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(
            f"The workspace is a GUID, the Workspace ID on its page in the portal, not {str(workspace)[:40]!r}."
        ) from None
    try:
        from azure.monitor.query import LogsQueryClient, LogsQueryPartialResult
    except ImportError:
        raise MissingExtraError("The telemetry of causes", "telemetry") from None
    with ExitStack() as closing:
        if credential is None:
            from azure.identity import DefaultAzureCredential

            credential = closing.enter_context(DefaultAzureCredential())
        options = {} if endpoint is None else {"endpoint": endpoint}
        client = closing.enter_context(LogsQueryClient(credential, **options))
        found = client.query_workspace(workspace, query, timespan=times, server_timeout=_SERVER_SECONDS)
    is_partial = isinstance(found, LogsQueryPartialResult)
    tables = found.partial_data if is_partial else found.tables
    problem = scrub(str(found.partial_error), _MAX_PROBLEM) if is_partial else None
    return LogRows([dict(zip(table.columns, row, strict=True)) for table in tables for row in table.rows], problem)
