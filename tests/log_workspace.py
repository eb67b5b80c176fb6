"""A stand-in for the query service of Azure Monitor Logs, over HTTPS, which answers in its published form.

The requests and answers are those of https://learn.microsoft.com/azure/azure-monitor/logs/api/request-format and
response-format. It has two tables, and reads of a query only the operations and times that it names.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import trustme
from azure.core.credentials import AccessToken

WORKSPACE: Final = "3f2a7c1e-0d5b-4e7a-9c44-1b2f6d8e9a10"
COLUMNS: Final = {
    "TimeGenerated": "datetime",
    "OperationId": "string",
    "Kind": "string",
    "Name": "string",
    "Target": "string",
    "Result": "string",
    "Text": "string",
    "Role": "string",
    "Items": "int",
}
_PARTIAL: Final = {
    "code": "PartialError",
    "message": "There were some errors when processing your query.",
    "details": [{"code": "EngineError", "message": "The results of this query exceed the set limit."}],
}


@dataclass
class LogWorkspace:
    """The rows of a workspace, and the requests that it got."""

    endpoint: str
    certificate: Path
    rows: list[list[Any]] = field(default_factory=list[list[Any]])
    queries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tokens: list[str] = field(default_factory=list[str])
    is_partial: bool = False
    refuses: bool = False

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.queries.append(body)
        if self.refuses or path != f"/v1/workspaces/{WORKSPACE}/query":
            error = {"message": "The provided credentials have insufficient access", "code": "InsufficientAccessError"}
            return 403, {"error": error}
        operations = set(re.findall(r'"([0-9a-f]{32})"', body["query"]))
        since, until = map(_time, re.findall(r"datetime\(([^)]+)\)", body["query"]))
        rows = [row for row in self.rows if row[1] in operations and since <= _time(row[0]) <= until]
        columns = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
        found: dict[str, Any] = {"tables": [{"name": "PrimaryResult", "columns": columns, "rows": rows}]}
        return 200, found | ({"error": _PARTIAL} if self.is_partial else {})


class Account:
    """A credential."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes += scopes
        return AccessToken("eyJ0ZXN0.token", 4_000_000_000)


@contextmanager
def log_workspace(folder: Path) -> Generator[LogWorkspace]:
    """Serve a workspace; ``REQUESTS_CA_BUNDLE`` has to name its certificate."""
    authority = trustme.CA()
    certificate = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own: Any = authority.issue_cert("localhost")
    own.configure_cert(context)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            workspace.tokens.append(self.headers["Authorization"])
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = workspace.answer(self.path, body)
            said = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        workspace = LogWorkspace(f"https://localhost:{server.server_port}", certificate)
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield workspace
        finally:
            server.shutdown()
            serving.join()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
