"""A form for a message that is sent at once or later: the plan is shown before."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import starmap
from typing import Any, Final

from sbnotebook.amqp import AmqpValue, encode, type_name
from sbnotebook.amqp.encoding import type_names
from sbnotebook.client import Namespace
from sbnotebook.client.targets import duration
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Message
from sbnotebook.model.body import BodyType, Marks, body_of_text, read_form
from sbnotebook.model.property_text import from_text, text_and_type
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Column, Row, Text
from sbnotebook.widgets.fields import FORM_CHANGED, Entry, optional, queue_or_topic, watch
from sbnotebook.widgets.forms.message_actions import have_faults
from sbnotebook.widgets.panel import Panel

_JSON: Final = "application/json"
_CONTENT_TYPES: Final = (_JSON, "text/plain", "application/xml")
_TEXTS: Final = {
    "subject": ("Subject", "what it is about"),
    "message_id": ("Message id", "for duplicate detection"),
    "session_id": ("Session id", "where there are sessions"),
    "correlation_id": ("Correlation id", ""),
}
_MAX_BODY: Final = 100_000
"""The most characters of a body in the form: a browser's text area is slow with more."""
_KINDS: Final = frozenset(type_names.values())
_PROPERTIES: Final = "one a line, such as carrier = UA or stops = 2 (long)"


class SendForm(Panel):
    """Asks for a message, and has a plan shown that sends it."""

    def __init__(self, namespace: Namespace, panel: ActionPanel, to: str = "") -> None:
        super().__init__()
        self._namespace = namespace
        self._panel = panel
        self._take_back: Callable[[str], object] = lambda _: None
        self.problem = ""
        self.to = Entry("Send to", queue_or_topic, to, hint="a queue or a topic")
        self.body = Entry("Body", str, type="area", hint='{"flight": 1545}', size="wide")
        self.content_type = Entry("Content type", str, type="suggest", options=_CONTENT_TYPES)
        self.texts = {name: Entry(words, str, hint=hint) for name, (words, hint) in _TEXTS.items()}
        self.properties = Entry("Properties", _properties_of, type="area", hint=_PROPERTIES, size="wide")
        self.delay = Entry("Delay", optional(duration), hint="such as 90s, 5m or 1h30m; empty for none")
        self.at = Entry("Time", optional(_time), hint="2030-01-31 07:30+00:00; empty for now")
        others = (*self.texts.values(), self.properties, self.delay, self.at)
        self._fields = (self.to, self.content_type, self.body, *others)
        watch(self._fields, lambda: self._take_back(FORM_CHANGED))

    def blocks(self) -> list[Block]:
        show = Button("Show what will be sent", self.submit, "Show the plan; nothing is sent yet", "primary")
        fields = [field.block() for field in self._fields]
        return [Column([*fields, Row([show]), Text(self.problem, "error")], "Message", "form")]

    # ------------------------------------------------------------ content

    def fill(self, message: Message) -> None:
        """Put a message into the form; what the form has no field for is left out, and so is its id."""
        body = message.body_text
        if body is None or len(body) > _MAX_BODY:
            raise DecisionError("Only a message whose body is text, and not very long, can be put into the form.")
        properties = "\n".join(starmap(_line_of, message.application_properties.items()))
        form = str(read_form(message.body, message.marks)[1])
        marks = Marks(BodyType.DATA, message.content_type, None, message.application_properties)
        try:
            sent = str(read_form(body_of_text(body, marks), marks)[1])
        except ValueError:
            sent = ""
        if sent != form:
            raise DecisionError(f"The form sends a plain text, and its body is {form}: resubmit it with an edit.")
        self.body.value, self.content_type.value = body, message.content_type or ""
        for name, field in self.texts.items():
            field.value = "" if name == "message_id" else getattr(message, name) or ""
        self.properties.value = properties

    def message(self) -> Message:
        texts: dict[str, Any] = {name: field.value or None for name, field in self.texts.items()}
        body, content_type = self.body.value, self.content_type.value.strip() or None
        if content_type is None and body.lstrip()[:1] in ("{", "[") and _is_json(body):
            content_type = _JSON
        properties = self.properties.read()
        try:
            data = body_of_text(body, Marks(content_type=content_type, properties=properties))
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"The charset of the body has no {body[error.start]!a}.") from None
        return Message(body=data, content_type=content_type, application_properties=properties, **texts)

    # ------------------------------------------------------------ the plan

    def submit(self) -> None:
        self.problem = ""
        if have_faults(self._fields):
            return
        at, delay, message = self.at.read(), self.delay.read(), self.message()
        if message.content_type == _JSON and not _is_json(self.body.value):
            self.problem = "The body is not JSON, although its content type says so."
        make = partial(self._namespace.entity(self.to.read()).plan_send, [message], at=at, delay=delay)
        self._take_back = self._panel.propose(make, title="Send")


def _time(value: str) -> datetime:
    """Return a time with its offset; UTC by default."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigurationError("Write the time as 2030-01-31 07:30+00:00.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _properties_of(text: str) -> dict[str, AmqpValue]:
    found: dict[str, AmqpValue] = {}
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or not equals or name in found:
            raise ConfigurationError(f"Each property has a name, and no two have the same: {_PROPERTIES}.")
        found[name] = _value_of(name, value)
    return found


def _value_of(name: str, text: str) -> AmqpValue:
    """Return the value of a text: a number, true and false have their own types, and others may be named behind it."""
    value, opening, kind = text.removesuffix(")").rpartition(" (")
    if not opening or not text.endswith(")") or kind not in _KINDS:
        try:
            typed = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if not isinstance(typed, (bool, int, float)):
            return typed if isinstance(typed, str) else text
        value, kind = text, type_name(typed)
    try:
        return from_text(value, None if kind == "string" else kind)
    except ConfigurationError:
        raise ConfigurationError(f"The value of {name[:40]!r} is not of the type {kind}.") from None


def _line_of(name: str, value: AmqpValue) -> str:
    text, kind = text_and_type(value)
    for said in (text, json.dumps(value) if isinstance(value, str) else f"{text} ({kind})"):
        with suppress(ConfigurationError):
            if encode(_properties_of(f"{name} = {said}")) == encode({name: value}):
                return f"{name} = {said}"
    raise DecisionError("It has a property that the form cannot hold.")


def _is_json(body: str) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
