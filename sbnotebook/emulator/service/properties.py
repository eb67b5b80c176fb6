"""The properties of queues, topics and subscriptions, under their names in Service Bus.

The descriptions of the administration and Microsoft's emulator's ``Config.json`` share these names.

Source: Service Bus REST documentation, "Queue description", "Topic description" and
"Subscription description".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeVar

from sbnotebook.emulator.entities.options import (
    EntityStatus,
    Options,
    format_duration,
    forwarding_target,
    parse_duration,
)
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.address import EntityAddress

__all__ = ["CORRELATION_PROPERTIES", "PROPERTIES", "Property", "read_properties"]

_MAX_DIGITS: Final = 9
_FOREVER: Final = 10_675_199 * 86_400_000
"""Milliseconds: from here on a duration is the longest that .NET knows, which means never."""
_O = TypeVar("_O", bound=Options)


class Property(NamedTuple):
    """One property.

    Attributes:
        option: its name in the options.
        read: converts its text to the option.
        write: converts the option to its text, None to leave it out.
        is_fixed: whether it cannot change after the entity was created.
    """

    option: str
    read: Callable[[str], Any]
    write: Callable[[Any], str | None]
    is_fixed: bool = False


def read_properties(kind: type[_O], texts: Mapping[str, str], known: _O | None = None) -> _O:
    """Read the options of an entity.

    Args:
        kind: the options of a queue, a topic or a subscription.
        texts: the text of each property by its name. Properties of other kinds of entities are ignored; a missing or
            empty property has its default.
        known: the options of an entity that exists already; None for a new one.

    Raises:
        ConfigurationError: a property cannot be read, is out of its range, or cannot be changed any more.

    Example:
        >>> from sbnotebook.emulator.entities.options import QueueOptions
        >>> read_properties(QueueOptions, {"LockDuration": "PT30S"}).lock_duration
        30000
    """
    options = {field.name for field in fields(kind)}
    values: dict[str, Any] = {}
    for name, item in PROPERTIES.items():
        if item.option not in options:
            continue
        if texts.get(name):
            values[item.option] = _read(name, item, texts[name])
        if known is not None and item.is_fixed:
            _keep(kind, name, item.option, values, known)
    return kind(**values)


def _keep(kind: type[Options], name: str, option: str, values: dict[str, Any], known: Options) -> None:
    # In the words of Service Bus: azure-sdk-for-python, recordings of test_async_mgmt_queue_update_invalid.
    before = getattr(known, option)
    if values.setdefault(option, before) != before:
        what = kind.__name__.removesuffix("Options")
        raise ConfigurationError(
            f"SubCode=40000. The value for the {name} property of an existing {what} cannot be changed."
        )


def _read(name: str, item: Property, text: str) -> Any:
    try:
        return item.read(text.strip())
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _flag(text: str) -> bool:
    # As in XML Schema.
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise ConfigurationError(f"{text[:40]!r} is neither true nor false.")
    return known[text.lower()]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise ConfigurationError(f"{text[:40]!r} is not a number of at most {_MAX_DIGITS} digits.")
    return int(text)


def _life(text: str) -> int | None:
    duration = parse_duration(text)
    return None if duration >= _FOREVER else duration


def _target(text: str) -> str:
    name = forwarding_target(text)
    if EntityAddress.parse(name).path != name:
        raise ConfigurationError(f"{text[:80]!r} is not the name or address of a queue or topic.")
    return text


def _status(text: str) -> EntityStatus:
    try:
        return EntityStatus(text)
    except ValueError:
        raise ConfigurationError(f"{text[:40]!r} is none of {', '.join(EntityStatus)}.") from None


def _flag_text(value: bool) -> str:
    return "true" if value else "false"


def _number_text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _same(text: str | None) -> str | None:
    return text


def _flag_of(option: str, *, is_fixed: bool = False) -> Property:
    return Property(option, _flag, _flag_text, is_fixed)


def _number_of(option: str) -> Property:
    return Property(option, _number, _number_text)


PROPERTIES: Final[dict[str, Property]] = {
    "LockDuration": Property("lock_duration", parse_duration, format_duration),
    "MaxSizeInMegabytes": _number_of("max_size_mb"),
    "RequiresDuplicateDetection": _flag_of("requires_duplicate_detection", is_fixed=True),
    "RequiresSession": _flag_of("requires_session", is_fixed=True),
    "DefaultMessageTimeToLive": Property("default_time_to_live", _life, format_duration),
    "DeadLetteringOnMessageExpiration": _flag_of("dead_letter_on_expiration"),
    "DeadLetteringOnFilterEvaluationExceptions": _flag_of("dead_letter_on_filter_errors"),
    "DuplicateDetectionHistoryTimeWindow": Property("duplicate_detection_window", parse_duration, format_duration),
    "MaxDeliveryCount": _number_of("max_delivery_count"),
    "EnableBatchedOperations": _flag_of("enable_batched_operations"),
    "FilteringMessagesBeforePublishing": _flag_of("filter_messages_before_publishing"),
    "Status": Property("status", _status, str),
    "ForwardTo": Property("forward_to", _target, _same),
    "UserMetadata": Property("user_metadata", str, _same),
    "SupportOrdering": _flag_of("support_ordering"),
    "ForwardDeadLetteredMessagesTo": Property("forward_dead_letters_to", _target, _same),
    "AutoDeleteOnIdle": Property("auto_delete_on_idle", _life, format_duration),
    "EnablePartitioning": _flag_of("enable_partitioning", is_fixed=True),
    "EnableExpress": _flag_of("enable_express"),
    "MaxMessageSizeInKilobytes": _number_of("max_message_size_kb"),
}
"""Each property by its name. Keys of entities are not among them, because they are not plain text."""

CORRELATION_PROPERTIES: Final = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
"""The properties of a message that a correlation filter compares, and their names in the filter."""
