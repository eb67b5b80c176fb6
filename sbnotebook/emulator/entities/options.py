"""Options of queues, topics and subscriptions.

Durations are in ms; None means for ever, or never.

Sources: Service Bus documentation, "Service Bus quotas"; Service Bus REST documentation, "Queue
description", "Topic description" and "Subscription description".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from sbnotebook.errors import ConfigurationError

__all__ = [
    "FOREVER",
    "MAX_SIZE_MB",
    "AuthorizationRule",
    "Claim",
    "EntityStatus",
    "Options",
    "QueueOptions",
    "SubscriptionOptions",
    "TopicOptions",
    "format_duration",
    "forwarding_target",
    "options_from_json",
    "options_to_json",
    "parse_duration",
]

FOREVER: Final = "P10675199DT2H48M5.4775807S"
"""The longest duration of .NET, which Service Bus writes for an unlimited time."""

MAX_SIZE_MB: Final = 81_920
"""Megabytes of messages that an entity takes in at most."""

_SCHEMES: Final = frozenset(("sb", "amqp", "amqps", "http", "https"))
_FOREVER_DAYS: Final = 10_675_199
_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,7})?)S)?)?", re.ASCII
)
_MAX_LOCK_DURATION: Final = 300_000
_MAX_DELIVERY_COUNT: Final = 2000
_MIN_WINDOW, _MAX_WINDOW = 20_000, 7 * 86_400_000
_MIN_IDLE: Final = 300_000
_MAX_MESSAGE_SIZE: Final = 102_400
_MAX_METADATA: Final = 1024


class EntityStatus(StrEnum):
    """The status of an entity: which of sending and receiving it allows."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        """Tell whether messages can be sent to the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        """Tell whether messages can be received from the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class Claim(StrEnum):
    """A right that a key gives."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A named pair of keys, and what they allow.

    Source: Service Bus documentation, "Service Bus access control with Shared Access Signatures".
    """

    key_name: str
    primary_key: str
    secondary_key: str
    claims: frozenset[Claim]
    created_time: int = 0

    def __repr__(self) -> str:
        return f"AuthorizationRule({self.key_name!r}, claims={sorted(self.claims)})"


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Options of a queue.

    Args:
        lock_duration: how long a peek-lock, or the lock of a session, lasts; at most 5 minutes.
        max_delivery_count: failed deliveries after which a message is dead-lettered, 1 to 2000.
        requires_session: messages have a session id, and are received session by session.
        default_time_to_live: after which messages expire that do not ask for less.
        dead_letter_on_expiration: whether expired messages are dead-lettered, and not dropped.
        requires_duplicate_detection: messages whose id was seen within the window are dropped.
        duplicate_detection_window: 20 seconds to 7 days.
        forward_to: the queue or topic to which every message is forwarded: its name, or its address, of which only
            the path counts.
        forward_dead_letters_to: the same for every dead-lettered message.
        auto_delete_on_idle: after which an unused queue is deleted; at least 5 minutes. A queue that forwards stays.
        status: whether messages can be sent and received.
        max_size_mb: megabytes of messages that it takes in. A new queue with partitions takes in 16 times as much.
        max_message_size_kb: kilobytes of one message; None for what the tier allows.
        enable_partitioning: sequence numbers begin with the number of a partition.
        enable_batched_operations: kept and given back; the emulator always groups its writing.
        enable_express: kept and given back; not in the tier Premium.
        user_metadata: any text.
        authorization_rules: keys for this queue alone.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    lock_duration: int = 60_000
    max_delivery_count: int = 10
    requires_session: bool = False
    default_time_to_live: int | None = None
    dead_letter_on_expiration: bool = False
    requires_duplicate_detection: bool = False
    duplicate_detection_window: int = 600_000
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    auto_delete_on_idle: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    max_size_mb: int = 1024
    max_message_size_kb: int | None = None
    enable_partitioning: bool = False
    enable_batched_operations: bool = True
    enable_express: bool = False
    user_metadata: str | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def __post_init__(self) -> None:
        _check_receiving(self)
        _check_sending(self)


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Options of a topic; the fields are those of ``QueueOptions``, and two of its own.

    Args:
        support_ordering: kept and given back; the emulator always keeps the order.
        filter_messages_before_publishing: kept and given back.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    default_time_to_live: int | None = None
    requires_duplicate_detection: bool = False
    duplicate_detection_window: int = 600_000
    auto_delete_on_idle: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    max_size_mb: int = 1024
    max_message_size_kb: int | None = None
    enable_partitioning: bool = False
    enable_batched_operations: bool = True
    enable_express: bool = False
    support_ordering: bool = True
    filter_messages_before_publishing: bool = False
    user_metadata: str | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def __post_init__(self) -> None:
        _check_sending(self)


@dataclass(frozen=True, slots=True)
class SubscriptionOptions:
    """Options of a subscription; the fields are those of ``QueueOptions``, and one of its own.

    Args:
        dead_letter_on_filter_errors: whether a message that a rule cannot be evaluated for is
            dead-lettered, and not dropped.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    lock_duration: int = 60_000
    max_delivery_count: int = 10
    requires_session: bool = False
    default_time_to_live: int | None = None
    dead_letter_on_expiration: bool = False
    dead_letter_on_filter_errors: bool = True
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    auto_delete_on_idle: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    enable_batched_operations: bool = True
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        _check_receiving(self)


Options = QueueOptions | TopicOptions | SubscriptionOptions
_O = TypeVar("_O", bound=Options)


def options_to_json(options: Options) -> dict[str, Any]:
    """Return the options as plain values, for a store."""
    plain = asdict(options)
    for rule in plain.get("authorization_rules", ()):
        rule["claims"] = sorted(rule["claims"])
    return plain


def options_from_json(kind: type[_O], plain: Mapping[str, Any]) -> _O:
    """Read what ``options_to_json`` returned; an option that an older version did not have gets its default."""
    known = {field.name for field in fields(kind)}
    values: dict[str, Any] = {name: value for name, value in plain.items() if name in known}
    values["status"] = EntityStatus(values.get("status", EntityStatus.ACTIVE))
    if "authorization_rules" in known:
        values["authorization_rules"] = tuple(map(_rule, values.get("authorization_rules", ())))
    return kind(**values)


def _rule(plain: dict[str, Any]) -> AuthorizationRule:
    values: dict[str, Any] = {**plain, "claims": frozenset(map(Claim, plain["claims"]))}
    return AuthorizationRule(**values)


def _check_receiving(options: QueueOptions | SubscriptionOptions) -> None:
    _expect(
        0 < options.lock_duration <= _MAX_LOCK_DURATION,
        "LockDuration must be longer than zero and at most 5 minutes (PT5M).",
    )
    _expect(
        1 <= options.max_delivery_count <= _MAX_DELIVERY_COUNT,
        f"MaxDeliveryCount must be from 1 to {_MAX_DELIVERY_COUNT}.",
    )
    _check_any(options)


def _check_sending(options: QueueOptions | TopicOptions) -> None:
    _expect(
        _MIN_WINDOW <= options.duplicate_detection_window <= _MAX_WINDOW,
        "DuplicateDetectionHistoryTimeWindow must be from 20 seconds (PT20S) to 7 days (P7D).",
    )
    _expect(1 <= options.max_size_mb <= MAX_SIZE_MB, f"MaxSizeInMegabytes must be from 1 to {MAX_SIZE_MB}.")
    size = options.max_message_size_kb
    _expect(
        size is None or 1 <= size <= _MAX_MESSAGE_SIZE,
        f"MaxMessageSizeInKilobytes must be from 1 to {_MAX_MESSAGE_SIZE}.",
    )
    _check_any(options)


def _check_any(options: Options) -> None:
    life, idle = options.default_time_to_live, options.auto_delete_on_idle
    _expect(life is None or life > 0, "DefaultMessageTimeToLive must be longer than zero.")
    _expect(idle is None or idle >= _MIN_IDLE, "AutoDeleteOnIdle must be at least 5 minutes (PT5M).")
    _expect(len(options.user_metadata or "") <= _MAX_METADATA, f"UserMetadata has at most {_MAX_METADATA} characters.")


def _expect(condition: bool, rule: str) -> None:
    if not condition:
        raise ConfigurationError(rule)


@lru_cache
def forwarding_target(text: str) -> str:
    """Return the name of the entity that messages are forwarded to, from a name or an address.

    Example:
        >>> forwarding_target("sb://localhost:5672/team/orders"), forwarding_target("orders")
        ('team/orders', 'orders')
    """
    try:
        address = urlsplit(text)
    except ValueError:
        return text
    return unquote(address.path).strip("/") if address.scheme.lower() in _SCHEMES and address.netloc else text


def parse_duration(text: str) -> int:
    """Read an ISO 8601 duration of days, hours, minutes and seconds.

    Returns:
        Milliseconds.

    Raises:
        ConfigurationError: the text is not such a duration.

    Example:
        >>> parse_duration("PT1M30S")
        90000
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ConfigurationError(f"{text[:40]!r} is not a duration: write for example PT30S, PT5M or P1DT12H.")
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(match[4] or 0) * 1000)


def format_duration(milliseconds: int | None) -> str:
    """Write a duration in ISO 8601; None is for ever.

    Example:
        >>> format_duration(90_000), format_duration(500), format_duration(14 * 86_400_000)
        ('PT1M30S', 'PT0.5S', 'P14D')
    """
    if milliseconds is None:
        return FOREVER
    days, rest = divmod(milliseconds, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number]
    if rest or not (days or parts):
        parts.append(f"{rest / 1000:g}S")
    return "P" + (f"{days}D" if days else "") + ("T" + "".join(parts) if parts else "")
