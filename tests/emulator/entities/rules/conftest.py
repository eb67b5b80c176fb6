"""Messages as rules see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sbnotebook.amqp import AmqpValue
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from tests.emulator.entities.conftest import encoded


def subject(properties: Mapping[Any, AmqpValue] | None = None, /, **system: Any) -> RuleSubject:
    """A message with these application properties, and system properties such as its label."""
    fields: list[Any] = [None] * 13
    places = {"message_id": 0, "to": 2, "label": 3, "reply_to": 4, "correlation_id": 5, "content_type": 6}
    places |= {"session_id": 10, "reply_to_session_id": 12}
    for name, value in system.items():
        fields[places[name]] = value
    return RuleSubject(encoded(sections={PROPERTIES: fields, APPLICATION_PROPERTIES: properties or {}}))
