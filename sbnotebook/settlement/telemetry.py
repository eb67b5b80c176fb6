"""Query the telemetry of applications in a Log Analytics workspace, by Microsoft's own client."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Any
from uuid import UUID

from sbnotebook.errors import ConfigurationError, MissingExtraError
from sbnotebook.model.connection_strings import scrub


def query_logs(
    workspace: str, query: str, times: tuple[datetime, datetime], credential: Any = None, endpoint: str | None = None
) -> tuple[list[dict[str, Any]], str]:
    """Run a Kusto query, and return its rows by the names of columns, and why the answer is partial, if it is.

    Args:
        workspace: the workspace ID, a GUID.
        query: the query.
        times: only telemetry between these is read.
        credential: a synchronous token credential; None for azure.identity's DefaultAzureCredential.
        endpoint: of the query service, None for Azure's public cloud.
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
        client = closing.enter_context(LogsQueryClient(credential, **({"endpoint": endpoint} if endpoint else {})))
        found = client.query_workspace(workspace, query, timespan=times, server_timeout=60)
    is_partial = isinstance(found, LogsQueryPartialResult)
    tables = found.partial_data if is_partial else found.tables
    rows = [dict(zip(table.columns, row, strict=True)) for table in tables for row in table.rows]
    return rows, scrub(str(found.partial_error), 300) if is_partial else ""
