"""Plain HTTP requests to the management routes, for what the SDK never sends."""

from __future__ import annotations

import http.client
import json
from typing import Any

from sbnotebook.emulator import RunningEmulator
from tests.emulator.service.conftest import token

__all__ = ["ask", "described"]


def ask(
    emulator: RunningEmulator,
    method: str,
    path: str,
    body: str | None = None,
    kind: str = "application/json",
    **headers: str | None,
) -> tuple[int, Any]:
    """Return the status and the content of an answer; JSON as Python values. A header of None is left out."""
    given = {"Content-Type": kind, "Authorization": token(), **headers}
    connection = http.client.HTTPConnection(emulator.http_url.removeprefix("http://"), timeout=20)
    connection.request(method, path, body, {name: value for name, value in given.items() if value is not None})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.headers.get_content_type() == "application/json"
    return response.status, json.loads(content) if is_json else content.decode()


def described(kind: str, content: str = "") -> str:
    """A description in its envelope."""
    return (
        f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><{kind} '
        f'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">{content}</{kind}></content></entry>'
    )
