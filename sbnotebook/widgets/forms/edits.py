"""Changes to messages that a form describes, step by step, as an edit for a resubmit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from sbnotebook.errors import DecisionError
from sbnotebook.model import BodyType, Message, ReceivedMessage
from sbnotebook.model.amqp import AmqpValue, encode, type_name
from sbnotebook.model.body import body_of_text
from sbnotebook.model.property_text import from_text
from sbnotebook.settlement.plan import Edit
from sbnotebook.widgets.forms.json_edit import json_text, parse_path, remove_at, set_at

__all__ = ["Step", "StepKind", "edit_of"]


class StepKind(StrEnum):
    """What a step changes."""

    SET_PROPERTY = "Set property"
    REMOVE_PROPERTY = "Remove property"
    SUBJECT = "Set subject"
    CONTENT_TYPE = "Set content type"
    CORRELATION_ID = "Set correlation id"
    SESSION_ID = "Set session id"
    REPLACE = "Replace text in body"
    SET_JSON = "Set in JSON body"
    REMOVE_JSON = "Remove from JSON body"

    @property
    def name_of(self) -> str:
        """What its name is of; "" where it has none."""
        return _NAMES.get(self, "")

    @property
    def value_of(self) -> str:
        """What its value is; "" where it has none."""
        return _VALUES.get(self, "")


_FIELDS: Final = {
    StepKind.SUBJECT: "subject",
    StepKind.CONTENT_TYPE: "content_type",
    StepKind.CORRELATION_ID: "correlation_id",
    StepKind.SESSION_ID: "session_id",
}
_NAMES: Final = {
    StepKind.SET_PROPERTY: "name of the property",
    StepKind.REMOVE_PROPERTY: "name of the property",
    StepKind.REPLACE: "text to find",
    StepKind.SET_JSON: "path, such as $.carrier.code",
    StepKind.REMOVE_JSON: "path, such as $.carrier.code",
}
_VALUES: Final = {
    StepKind.SET_PROPERTY: "value; it keeps the type that it has",
    StepKind.REPLACE: "text to put in its place",
    StepKind.SET_JSON: "value: JSON, or a text",
    **dict.fromkeys(_FIELDS, "value; empty for none"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One change.

    Args:
        kind: of what.
        name: of the property, the path in JSON, or the text that is looked for.
        value: what is set.

    Example:
        >>> from sbnotebook import PeekedMessage
        >>> message = PeekedMessage(entity="orders", sequence_number=7, body=b'{"carrier": "??"}')
        >>> Step(StepKind.SET_JSON, "$.carrier", "UA").edit()(message).body
        b'{"carrier": "UA"}'
    """

    kind: StepKind
    name: str = ""
    value: str = ""

    def edit(self) -> Edit:
        """What carries it out.

        Raises:
            DecisionError: something is missing, or the path is none.
        """
        if self.kind.name_of and not self.name:
            raise DecisionError(f"{self.kind}: the {self.kind.name_of} is missing.")
        match self.kind:
            case StepKind.SET_PROPERTY:
                return partial(_set_property, self.name, self.value)
            case StepKind.REMOVE_PROPERTY:
                return partial(_remove_property, self.name)
            case StepKind.REPLACE:
                return partial(_change_text, lambda text: text.replace(self.name, self.value))
            case StepKind.SET_JSON:
                path, value = parse_path(self.name), json_text(self.value)
                return partial(_change_text, lambda text: set_at(text, path, value))
            case StepKind.REMOVE_JSON:
                path = parse_path(self.name)
                return partial(_change_text, lambda text: remove_at(text, path))
            case _:
                changes: dict[str, Any] = {_FIELDS[self.kind]: self.value or None}
                return lambda message: message.with_changes(**changes)


def edit_of(steps: Sequence[Step]) -> Edit:
    """An edit that takes these steps, one after the other.

    Raises:
        DecisionError: one of them cannot be taken.
    """
    edits: list[Callable[[Any], Message]] = [step.edit() for step in steps]

    def edit(message: ReceivedMessage) -> Message:
        edited: Message = message
        for each in edits:
            edited = each(edited)
        return edited

    return edit


def _set_property(name: str, text: str, message: Message) -> Message:
    properties = dict(message.application_properties)
    properties[name] = _typed(text, properties.get(name))
    return message.with_changes(application_properties=properties)


def _typed(text: str, before: AmqpValue) -> AmqpValue:
    """A text as the type that a property has; a new one is a text."""
    return text if before is None else from_text(text, type_name(before))


def _remove_property(name: str, message: Message) -> Message:
    left = {key: value for key, value in message.application_properties.items() if key != name}
    return message.with_changes(application_properties=left)


def _change_text(change: Callable[[str], str], message: Message) -> Message:
    before = message.body_text
    if before is None:
        raise DecisionError("The body is no text: change it with a Python function.")
    after = change(before)
    if after == before:
        return message
    if message.body_type is BodyType.VALUE and isinstance(message.body_value, str):
        return message.with_changes(body=encode(after))
    kinds = message.content_type, message.content_encoding
    if message.body_type is not BodyType.DATA or body_of_text(before, *kinds) != message.body:
        raise DecisionError(
            "The body is packed, wrapped, or not in the charset that its content type names, so what does not change "
            "would not stay as it was: change it with a Python function."
        )
    return message.with_changes(body=body_of_text(after, *kinds))
