"""The page that shows the entities and their messages in a browser; it changes nothing.

Names and messages are written as text only. The policy lets nothing run or load but the script and the style of the
page itself, which it knows by their hashes.

Source: W3C, "Content Security Policy Level 3", section 2.3.1.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from sbnotebook.amqp.sections import DATA, PROPERTIES, SEQUENCE, VALUE, section_value, split
from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.errors import AmqpDecodeError


@cache
def _parts() -> tuple[str, str]:
    folder = files("sbnotebook.emulator") / "static"
    html, style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.replace("{style}", style).replace("{script}", script), policy


def page() -> web.Response:
    html, policy = _parts()
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=html, content_type="text/html", headers=headers)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_MOST: Final = 50  # Messages in one answer
# Bytes of the messages of one answer, unless its first message alone is larger; of such a message no body is shown
_MAX_BYTES: Final = 1_000_000
_MAX_TEXT: Final = 2000  # Characters of a text that are shown
_MESSAGE_ID, _SUBJECT = 0, 3  # places among the properties (AMQP 1.0 part 3, section 3.2.4)


def shown_messages(box: Receivable, start: int, now: int) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    size = 0
    for message in box.peek(start, _MOST):
        size += message.size
        if shown and size > _MAX_BYTES:
            break
        shown.append(_shown(box, message, now))
    return shown


def _shown(box: Receivable, message: BrokeredMessage, now: int) -> dict[str, Any]:
    is_locked = message.lock_token is not None and message.locked_until > now
    shown = {
        "sequence_number": message.sequence_number,
        "enqueued_time": message.enqueued_time,
        "state": "locked" if is_locked else message.state.name.lower(),
        "delivery_count": message.delivery_count,
        "session_id": message.session_id,
    }
    if message.size > _MAX_BYTES:
        return shown | {"message_id": None, "subject": None, "body": f"{message.size} bytes"}
    try:
        return shown | _texts(box.rendered(message))
    except AmqpDecodeError as error:
        return shown | {"message_id": None, "subject": None, "body": f"It cannot be read: {error}"[:_MAX_TEXT]}


def _texts(payload: bytes) -> dict[str, str | None]:
    sections = split(payload)
    properties: list[Any] = [None] * (_SUBJECT + 1)
    bodies: list[str] = []
    for section in sections:
        if section.code == PROPERTIES:
            found: Any = section_value(payload, section)
            properties = [*found, *properties]
        elif section.code in (DATA, SEQUENCE, VALUE):
            bodies.append(_text(section_value(payload, section)) or "")
    return {
        "message_id": _text(properties[_MESSAGE_ID]),
        "subject": _text(properties[_SUBJECT]),
        "body": "".join(bodies)[:_MAX_TEXT],
    }


def _text(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, bytes):
        return str(value)[:_MAX_TEXT]
    try:
        return value.decode()[:_MAX_TEXT]
    except UnicodeDecodeError:
        return f"{len(value)} bytes: {value[:64].hex(' ')}"
