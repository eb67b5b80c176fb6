"""A form for a message that is sent at once or later: the plan is shown before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from sbnotebook.amqp import AmqpValue
from sbnotebook.client import Namespace
from sbnotebook.client.coercions import duration
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import Message
from sbnotebook.model.body import BodyType, Marks, body_of_text, read_form
from sbnotebook.model.property_text import from_text, property_type, to_text
from sbnotebook.widgets import background
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Form, Row, Text
from sbnotebook.widgets.fields import FORM_CHANGED, Entry, choice_entry, queue_or_topic, watch
from sbnotebook.widgets.panel import Panel

_T = TypeVar("_T")

_NOW, _AFTER, _AT = "now", "after a delay", "at a time"
_JSON: Final = "application/json"
_CONTENT_TYPES: Final = (_JSON, "text/plain", "application/xml")
_TYPES: Final = (
    ("text", "string"),
    ("whole number", "long"),
    ("whole number, 32 bits", "int"),
    ("number", "double"),
    ("true or false", "boolean"),
    ("time", "timestamp"),
    ("GUID", "uuid"),
    ("bytes in base64", "binary"),
)
_TEXTS: Final = {
    "subject": ("Subject", "what it is about"),
    "message_id": ("Message id", "for duplicate detection"),
    "session_id": ("Session id", "where there are sessions"),
    "correlation_id": ("Correlation id", ""),
}
_MAX_BODY: Final = 100_000
"""The most characters of a body in the form: a browser's text area is slow with more."""


class _Property:
    def __init__(self, name: str = "", kind: str = "string", value: str = "") -> None:
        label = next(label for label, known in _TYPES if known == kind)
        self.name = Entry("Property", str, name, hint="name", size="short")
        self.kind = Entry("Type", str, label, type="choice", options=[label for label, _ in _TYPES])
        self.value = Entry("Value", str, value, hint="value")

    @property
    def entries(self) -> tuple[Entry[str], ...]:
        return (self.name, self.kind, self.value)


class SendForm(Panel):
    """Asks for a message, and has a plan shown that sends it."""

    def __init__(self, namespace: Namespace, panel: ActionPanel, to: str = "") -> None:
        super().__init__()
        self._namespace = namespace
        self._panel = panel
        self._take_back: Callable[[str], object] = lambda _: None
        self.body_problem = self.properties_problem = ""
        self.to = Entry("Send to", queue_or_topic, to, hint="a queue or a topic")
        self.body = Entry("Body", str, type="area", hint='{"flight": 1545}', size="wide")
        self.content_type = Entry("Content type", str, type="suggest", options=_CONTENT_TYPES)
        self.texts = {name: Entry(words, str, hint=hint) for name, (words, hint) in _TEXTS.items()}
        self.properties: tuple[_Property, ...] = ()
        self.when = choice_entry("When", [_NOW, _AFTER, _AT])
        self.delay = Entry("Delay", duration, hint="such as 90s, 5m or 1h30m")
        self.at = Entry("Time", _time, hint="2030-01-31 07:30+00:00")
        entries = (self.to, self.body, self.content_type, *self.texts.values(), self.when, self.delay, self.at)
        watch(entries, self._changed)

    def blocks(self) -> list[Block]:
        subject, message_id, session_id, correlation_id = self.texts.values()
        times = {_NOW: [], _AFTER: self.delay.blocks(), _AT: self.at.blocks()}
        add = Button("Add a property", self.add_property, "One more application property", icon="plus")
        fields = (
            *(_row(each) for each in ((self.to, self.content_type), (self.body,))),
            *_fault(self.body_problem, "body-problem"),
            *(_row(each) for each in ((subject, message_id), (session_id, correlation_id))),
            *(self._property(item) for item in self.properties),
            *_fault(self.properties_problem, "properties-problem"),
            Row([add], key="add"),
            Row([self.when.block(), *times[self.when.value]], key="when"),
            Row([Button("Show what will be sent", self.submit, "Show the plan; nothing is sent yet", "primary")]),
        )
        return [Form("", fields)]

    def _property(self, item: _Property) -> Block:
        away = Button("✕", partial(self._remove, item), "Leave this property out")
        return Row([*(entry.block() for entry in item.entries), away], key=f"{id(item)}")

    def _changed(self) -> None:
        self._take_back(FORM_CHANGED)

    # ------------------------------------------------------------ content

    def add_property(self, name: str = "", kind: str = "string", value: str = "") -> None:
        item = _Property(name, kind, value)
        watch(item.entries, self._changed)
        self.properties = (*self.properties, item)
        self._changed()

    def _remove(self, gone: _Property) -> None:
        self.properties = tuple(item for item in self.properties if item is not gone)
        self._changed()

    def fill(self, message: Message) -> None:
        """Put a message into the form; what the form has no field for is left out, and so is its id."""
        body = message.body_text
        if body is None or len(body) > _MAX_BODY:
            raise DecisionError("Only a message whose body is text, and not very long, can be put into the form.")
        kinds = {kind for _, kind in _TYPES}
        properties = [
            (name, property_type(value), to_text(value) or "") for name, value in message.application_properties.items()
        ]
        strange = next((name for name, kind, _ in properties if kind not in kinds), None)
        if strange is not None:
            raise DecisionError("It has a property of a type that the form has no field for.")
        self._check_form(message, body)
        self.body.value, self.content_type.value = body, message.content_type or ""
        for name, field in self.texts.items():
            field.value = "" if name == "message_id" else getattr(message, name) or ""
        self.properties = ()
        for each in properties:
            self.add_property(*each)

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
        properties = self._properties()
        return Message(
            body=_encoded(body, content_type, properties),
            content_type=content_type,
            application_properties=properties,
            **texts,
        )

    def _properties(self) -> Mapping[str, AmqpValue]:
        found: dict[str, AmqpValue] = {}
        kinds = dict(_TYPES)
        for item in self.properties:
            name, value = item.name.value.strip(), item.value.value
            if not name and not value:
                continue
            if not name or name in found:
                raise ConfigurationError("Each property has a name, and no two have the same.")
            try:
                found[name] = from_text(value, None if kinds[item.kind.value] == "string" else kinds[item.kind.value])
            except ConfigurationError:
                raise ConfigurationError(f"The value of {name[:40]!r} is not a {item.kind.value}.") from None
        return found

    def _when(self) -> tuple[datetime | None, timedelta | None]:
        """Return the time and the delay, of which one at most is set."""
        if self.when.value == _AFTER:
            return None, self.delay.read()
        return (self.at.read() if self.when.value == _AT else None), None

    # ------------------------------------------------------------ the plan

    def submit(self) -> None:
        self.body_problem = ""
        # Read all fields before the first error ends it, so that each field shows its fault.
        to, message, when = _read(self.to.read), self._read_message(), _read(self._when)
        if to is None or message is None or when is None:
            return
        if message.content_type == _JSON and not _is_json(self.body.value):
            self.body_problem = "The body is not JSON, although its content type says so."
        entity, (at, delay) = self._namespace.entity(to), when
        make = partial(entity.plan_send, [message], at=at, delay=delay)
        self._take_back = self._panel.propose(make, title="Send")

    def _read_message(self) -> Message | None:
        try:
            message = self.message()
        except SbNotebookError as error:
            self.properties_problem = background.sentence(error)
            return None
        self.properties_problem = ""
        return message


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


def _fault(problem: str, key: str) -> list[Block]:
    return [Text(problem, "error", key=key)] if problem else []


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
