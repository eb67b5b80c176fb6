"""A form for a message that is sent at once or later: the plan is shown before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import starmap
from typing import Any, Final, TypeVar

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.amqp.types import type_names
from sbnotebook.client import Namespace
from sbnotebook.client.coercions import duration
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import Message
from sbnotebook.model.body import BodyType, Marks, body_of_text, read_form
from sbnotebook.model.property_text import from_text, text_and_type
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Form, Row, Text
from sbnotebook.widgets.fields import FORM_CHANGED, Entry, choice_entry, queue_or_topic, watch
from sbnotebook.widgets.panel import Panel

_T = TypeVar("_T")

_NOW, _AFTER, _AT = "now", "after a delay", "at a time"
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
        self.body_problem = ""
        self.to = Entry("Send to", queue_or_topic, to, hint="a queue or a topic")
        self.body = Entry("Body", str, type="area", hint='{"flight": 1545}', size="wide")
        self.content_type = Entry("Content type", str, type="suggest", options=_CONTENT_TYPES)
        self.texts = {name: Entry(words, str, hint=hint) for name, (words, hint) in _TEXTS.items()}
        self.properties = Entry("Properties", _properties_of, type="area", hint=_PROPERTIES, size="wide")
        self.when = choice_entry("When", [_NOW, _AFTER, _AT])
        self.delay = Entry("Delay", duration, hint="such as 90s, 5m or 1h30m")
        self.at = Entry("Time", _time, hint="2030-01-31 07:30+00:00")
        others = (*self.texts.values(), self.properties, self.when, self.delay, self.at)
        watch((self.to, self.body, self.content_type, *others), self._changed)

    def blocks(self) -> list[Block]:
        subject, message_id, session_id, correlation_id = self.texts.values()
        times = {_NOW: [], _AFTER: self.delay.blocks(), _AT: self.at.blocks()}
        rows = ((subject, message_id), (session_id, correlation_id), (self.properties,))
        fields = (
            *(_row(each) for each in ((self.to, self.content_type), (self.body,))),
            *([Text(self.body_problem, "error", key="body-problem")] if self.body_problem else []),
            *map(_row, rows),
            Row([self.when.block(), *times[self.when.value]], key="when"),
            Row([Button("Show what will be sent", self.submit, "Show the plan; nothing is sent yet", "primary")]),
        )
        return [Form("", fields)]

    def _changed(self) -> None:
        self._take_back(FORM_CHANGED)

    # ------------------------------------------------------------ content

    def fill(self, message: Message) -> None:
        """Put a message into the form; what the form has no field for is left out, and so is its id."""
        body = message.body_text
        if body is None or len(body) > _MAX_BODY:
            raise DecisionError("Only a message whose body is text, and not very long, can be put into the form.")
        properties = "\n".join(starmap(_line_of, message.application_properties.items()))
        self._check_form(message, body)
        self.body.value, self.content_type.value = body, message.content_type or ""
        for name, field in self.texts.items():
            field.value = "" if name == "message_id" else getattr(message, name) or ""
        self.properties.value = properties

    def _check_form(self, message: Message, text: str) -> None:
        form = str(read_form(message.body, message.marks)[1])
        marks = Marks(BodyType.DATA, message.content_type, None, message.application_properties)
        try:
            is_same = str(read_form(body_of_text(text, marks), marks)[1]) == form
        except ValueError:
            is_same = False
        if not is_same:
            raise DecisionError(f"The form sends a plain text, and its body is {form}: resubmit it with an edit.")

    def message(self) -> Message:
        texts: dict[str, Any] = {name: field.value or None for name, field in self.texts.items()}
        body, content_type = self.body.value, self.content_type.value.strip() or None
        if content_type is None and body.lstrip()[:1] in ("{", "[") and _is_json(body):
            content_type = _JSON
        properties = self.properties.read()
        return Message(
            body=_encoded(body, content_type, properties),
            content_type=content_type,
            application_properties=properties,
            **texts,
        )

    def _when(self) -> tuple[datetime | None, timedelta | None]:
        """Return the time and the delay, of which one at most is set."""
        if self.when.value == _AFTER:
            return None, self.delay.read()
        return (self.at.read() if self.when.value == _AT else None), None

    # ------------------------------------------------------------ the plan

    def submit(self) -> None:
        self.body_problem = ""
        # Read all fields before the first error ends it, so that each field shows its fault.
        to, properties, when = _read(self.to.read), _read(self.properties.read), _read(self._when)
        if to is None or properties is None or when is None:
            return
        try:
            message = self.message()
        except ConfigurationError as error:
            self.body_problem = str(error)
            return
        if message.content_type == _JSON and not _is_json(self.body.value):
            self.body_problem = "The body is not JSON, although its content type says so."
        entity, (at, delay) = self._namespace.entity(to), when
        make = partial(entity.plan_send, [message], at=at, delay=delay)
        self._take_back = self._panel.propose(make, title="Send")


def _read(read: Callable[[], _T]) -> _T | None:
    """Return the value of a field; None if the field shows a fault."""
    try:
        return read()
    except SbNotebookError:
        return None


def _time(value: str) -> datetime:
    """Return a time with its offset; UTC by default."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigurationError("Write the time as 2030-01-31 07:30+00:00.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _row(entries: Sequence[Entry[Any]]) -> Row:
    return Row([entry.block() for entry in entries], key=entries[0].block().name)


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
    if opening and text.endswith(")") and kind in _KINDS:
        try:
            return from_text(value, None if kind == "string" else kind)
        except ConfigurationError:
            raise ConfigurationError(f"The value of {name[:40]!r} is not of the type {kind}.") from None
    try:
        typed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return typed if isinstance(typed, (bool, int, float, str)) else text


def _line_of(name: str, value: AmqpValue) -> str:
    text, kind = text_and_type(value)
    for said in (text, json.dumps(value) if isinstance(value, str) else f"{text} ({kind})"):
        with suppress(ConfigurationError):
            if encode(_properties_of(f"{name} = {said}")) == encode({name: value}):
                return f"{name} = {said}"
    raise DecisionError("It has a property that the form cannot hold.")


def _encoded(text: str, content_type: str | None, properties: Mapping[str, AmqpValue]) -> bytes:
    try:
        return body_of_text(text, Marks(content_type=content_type, properties=properties))
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"The charset of the body has no {text[error.start]!a}.") from None


def _is_json(body: str) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
