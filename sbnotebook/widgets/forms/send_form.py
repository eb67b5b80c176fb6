"""A form for a message that is sent at once or later: the plan is shown before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import ipywidgets as widgets

from sbnotebook.amqp import AmqpValue
from sbnotebook.client import Namespace
from sbnotebook.client.coercions import duration
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import Message
from sbnotebook.model.body import BodyType, Marks, body_of_text, read_form
from sbnotebook.model.property_text import from_text, property_type, to_text
from sbnotebook.widgets import background
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.box_panel import button, row, set_shown, text
from sbnotebook.widgets.forms.fields import FORM_CHANGED, Field, as_it_is, on_change, queue_or_topic

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
_STYLE: Final = {"description_width": "95px"}
_HALF: Final = "305px"
_WIDE: Final = "620px"
_MAX_BODY: Final = 100_000
"""The most characters of a body in the form: a browser's text area is slow with more."""


class _Property(widgets.HBox):
    """One application property: its name, type and value.

    Args:
        remove: is given it when it is taken away.
    """

    def __init__(
        self, remove: Callable[[_Property], object], name: str = "", kind: str = "string", value: str = ""
    ) -> None:
        fitting = {"description_width": "initial"}
        self.name = widgets.Text(
            name, description="Property", placeholder="name", style=fitting, layout={"width": "220px"}
        )
        self.kind = widgets.Dropdown(
            options=_TYPES, value=kind, description="Type", style=fitting, layout={"width": "200px"}
        )
        self.value = widgets.Text(
            value, description="Value", placeholder="value", style=fitting, layout={"width": "280px"}
        )
        away = button("✕", "Leave this property out", lambda: remove(self))
        super().__init__([self.name, self.kind, self.value, away], layout={"flex_flow": "row wrap"})


class SendForm(widgets.VBox):
    """Asks for a message, and has a plan shown that sends it.

    Args:
        namespace: where it is sent.
        panel: shows the plan and carries it out.
        to: the queue or topic in the form at first.

    Example:
        >>> form = SendForm(namespace, ActionPanel(namespace), "orders")  # doctest: +SKIP
    """

    def __init__(self, namespace: Namespace, panel: ActionPanel, to: str = "") -> None:
        self._namespace = namespace
        self._panel = panel
        self._take_back: Callable[[str], object] = lambda _: None
        self.body_problem, self.properties_problem = text("", "problem"), text("", "problem")
        self.to = _field("Send to", queue_or_topic, "a queue or a topic", to)
        self.body = widgets.Textarea(
            description="Body", placeholder='{"flight": 1545}', rows=6, style=_STYLE, layout={"width": _WIDE}
        )
        self.content_type = widgets.Combobox(
            description="Content type", options=_CONTENT_TYPES, style=_STYLE, layout={"width": _HALF}
        )
        self.texts = {name: _field(words, as_it_is, hint) for name, (words, hint) in _TEXTS.items()}
        self.properties = widgets.VBox()
        self.when = widgets.Dropdown(
            description="When", options=[_NOW, _AFTER, _AT], style=_STYLE, layout={"width": _HALF}
        )
        self.delay = _field("Delay", duration, "such as 90s, 5m or 1h30m")
        self.at = _field("Time", _time, "2030-01-31 07:30+00:00")
        self.when.observe(lambda _: self._show_when(), "value")
        self.submit = button(
            "Show what will be sent", "Show the plan; nothing is sent yet", self._submit, kind="primary"
        )
        super().__init__(self._laid_out())
        self.add_class("sbn-form")
        for problem in (self.body_problem, self.properties_problem):
            set_shown(problem, shown=False)
        self._show_when()
        on_change(self, lambda: self._take_back(FORM_CHANGED))

    def _laid_out(self) -> list[widgets.Widget]:
        subject, message_id, session_id, correlation_id = self.texts.values()
        add = button("Add a property", "One more application property", self.add_property, icon="plus")
        return [
            row(self.to, self.content_type),
            self.body,
            self.body_problem,
            row(subject, message_id),
            row(session_id, correlation_id),
            self.properties,
            self.properties_problem,
            row(add),
            row(self.when, self.delay, self.at),
            row(self.submit),
        ]

    # ------------------------------------------------------------ content

    def add_property(self, name: str = "", kind: str = "string", value: str = "") -> None:
        """Add an application property to the form."""

        def remove(item: _Property) -> None:
            self.properties.children = [child for child in self.properties.children if child is not item]
            item.close()

        self.properties.children = (*self.properties.children, _Property(remove, name, kind, value))

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
        for child in self.properties.children:
            child.close()
        self.properties.children = ()
        for each in properties:
            self.add_property(*each)

    def _check_form(self, message: Message, text: str) -> None:
        form = str(read_form(message.body, message.marks)[1])
        marks = Marks(BodyType.DATA, message.content_type, None, message.application_properties)
        try:
            is_same = str(read_form(body_of_text(text, *marks[1:]), marks)[1]) == form
        except ValueError:
            is_same = False
        if not is_same:
            raise DecisionError(f"The form sends a plain text, and its body is {form}: resubmit it with an edit.")

    def message(self) -> Message:
        """Return the message in the form."""
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
        for item in self.properties.children:
            name, value = item.name.value.strip(), item.value.value
            if not name and not value:
                continue
            if not name or name in found:
                raise ConfigurationError("Each property has a name, and no two have the same.")
            try:
                found[name] = from_text(value, None if item.kind.value == "string" else item.kind.value)
            except ConfigurationError:
                raise ConfigurationError(f"The value of {name[:40]!r} is not a {item.kind.label}.") from None
        return found

    def _when(self) -> tuple[datetime | None, timedelta | None]:
        """Return the time and the delay, of which one at most is set."""
        if self.when.value == _AFTER:
            return None, self.delay.read()
        return (self.at.read() if self.when.value == _AT else None), None

    # ------------------------------------------------------------ the plan

    def _submit(self) -> None:
        _say(self.body_problem, "")
        # Read all fields before the first error ends it, so that each field shows its fault.
        to, message, when = _read(self.to.read), self._read_message(), _read(self._when)
        if to is None or message is None or when is None:
            return
        if message.content_type == _JSON and not _is_json(self.body.value):
            _say(self.body_problem, "The body is not JSON, although its content type says so.")
        entity, (at, delay) = self._namespace.entity(to), when
        make = partial(entity.plan_send, [message], at=at, delay=delay)
        self._take_back = self._panel.propose(make, title="Send")

    def _read_message(self) -> Message | None:
        try:
            message = self.message()
        except SbNotebookError as error:
            _say(self.properties_problem, background.sentence(error))
            return None
        _say(self.properties_problem, "")
        return message

    def _show_when(self) -> None:
        set_shown(self.delay, shown=self.when.value == _AFTER)
        set_shown(self.at, shown=self.when.value == _AT)


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


def _say(label: widgets.Label, words: str) -> None:
    label.value = words
    set_shown(label, shown=bool(words))


def _encoded(text: str, content_type: str | None, properties: Mapping[str, AmqpValue]) -> bytes:
    try:
        return body_of_text(text, content_type, None, properties)
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"The charset of the body has no {text[error.start]!a}.") from None


def _field(name: str, read: Callable[[str], _T], placeholder: str, value: str = "") -> Field[_T]:
    return Field(name, read, placeholder=placeholder, value=value, label=95, width=305)


def _is_json(body: str) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
