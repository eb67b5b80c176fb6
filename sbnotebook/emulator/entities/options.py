"""Options of queues, topics and subscriptions, one declaration of each, and the quotas of a namespace's tier.

The classes keep durations in milliseconds; None means for ever, or never. You give a duration as a timedelta, as a text
such as ``"30s"`` or ``"PT30S"``, or in milliseconds.

Sources: Service Bus documentation, "Service Bus quotas"; Service Bus REST documentation, "Queue description", "Topic
description" and "Subscription description"; azure-sdk-for-net, AdministrationClientConstants, for the least durations.

Source: Service Bus documentation, "Service Bus quotas" and "Service Bus Premium and Standard messaging tiers".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import Enum, StrEnum
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from sbnotebook.errors import ConfigurationError
from sbnotebook.model.address import EntityAddress

MAX_HEADER_SIZE: Final = 65_536
"""Bytes of all that is not body in one message."""
MAX_PROPERTY_SIZE: Final = 32_768
"""Bytes of the value of one application property, without the type and the length in front of it."""
MAX_ID_LENGTH: Final = 128
"""Characters of a message id, session id or partition key."""
MAX_HOPS: Final = 4


class Quotas(NamedTuple):
    max_message_size: int  # bytes of one message, unless the entity allows more
    max_large_message_size: int  # bytes that an entity can allow
    max_batch_size: int  # bytes of one batch
    max_session_state: int  # bytes of one session's state
    max_time_to_live: int | None  # ms; None for no limit
    max_entities: int  # queues and topics
    max_subscriptions: int  # of one topic

    def message_size(self, wanted_kb: int | None) -> int:
        return self.max_message_size if wanted_kb is None else min(wanted_kb * 1024, self.max_large_message_size)


class Tier(Enum):
    """A namespace's tier, by the name that Service Bus gives to it."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"

    @cached_property  # It is asked for with every message, and to find an enumeration's member in a dict is slow.
    def quotas(self) -> Quotas:
        small, large = 262_144, 1_048_576  # 256 kB and 1 MB
        return {
            Tier.BASIC: Quotas(small, small, small, 0, 14 * 86_400_000, 10_000, 0),
            Tier.STANDARD: Quotas(small, small, small, small, None, 10_000, 2000),
            Tier.PREMIUM: Quotas(large, 100 * large, large, large, None, 1_000_000, 2000),
        }[self]


FOREVER: Final = "P10675199DT2H48M5.4775807S"
"""The longest duration of .NET, which Service Bus writes for an unlimited time."""
MAX_SIZE_MB: Final = 81_920

_SCHEMES: Final = frozenset(("sb", "amqp", "amqps", "http", "https"))
# From here on a duration is the longest that .NET knows, which means never
_FOREVER_MS: Final = 10_675_199 * 86_400_000
_ISO: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,7})?)S)?)?", re.ASCII
)
_SHORT: Final = re.compile(
    r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9}(?:\.\d{1,7})?)s)?(?:(\d{1,9})ms)?", re.ASCII
)
_MAX_INT: Final = 2**31 - 1
_SECOND, _MINUTE, _DAY = 1000, 60_000, 86_400_000
_MAX_METADATA: Final = 1024

Duration = timedelta | str | int
_Given = TypeVar("_Given")
_Kept = TypeVar("_Kept")


class EntityStatus(StrEnum):
    """The status of an entity: which of sending and receiving it allows."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class Claim(StrEnum):
    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A named pair of keys, and what they allow.

    Source: Service Bus documentation, "Service Bus access control with Shared Access Signatures".
    """

    key_name: str
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    claims: frozenset[Claim]
    created_time: int = 0


@lru_cache
def forwarding_target(text: str) -> str:
    """Return the name of the entity that messages are forwarded to, from a name or an address."""
    try:
        address = urlsplit(text)
    except ValueError:
        return text
    return unquote(address.path).strip("/") if address.scheme.lower() in _SCHEMES and address.netloc else text


def parse_duration(text: str) -> int:
    """Read an ISO 8601 duration of days, hours, minutes and seconds."""
    match = _ISO.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ConfigurationError(f"{text[:40]!r} is not a duration: write for example PT30S, PT5M or P1DT12H.")
    return _sum_of(*match.groups())


def _sum_of(days: str | None, hours: str | None, minutes: str | None, seconds: str | None, rest: str = "0") -> int:
    whole = (int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)
    return whole * _MINUTE + round(float(seconds or 0) * _SECOND) + int(rest or 0)


def format_duration(milliseconds: int | None) -> str:
    """Write a duration in ISO 8601; None is for ever."""
    if milliseconds is None:
        return FOREVER
    days, rest = divmod(milliseconds, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number]
    if rest or not (days or parts):
        parts.append(f"{rest / 1000:g}S")
    return "P" + (f"{days}D" if days else "") + ("T" + "".join(parts) if parts else "")


class Option(Generic[_Given, _Kept]):
    """One option of an entity, as a field of the classes of the entities that have it."""

    attribute = ""

    def __init__(
        self,
        name: str,
        default: _Kept,
        check: Callable[[Any], _Kept],
        read: Callable[[str], Any] = str,
        write: Callable[[Any], str | None] = lambda value: value,
        *,
        values: str = "",
        is_fixed: bool = False,
    ) -> None:
        self.name = name
        self.values = values
        self.default = default
        self.is_fixed = is_fixed
        self.write = write
        self._check = check
        self._read = read

    def __set_name__(self, _owner: type, attribute: str) -> None:
        self.attribute = attribute

    # Only declared: without it, reading an option is as quick as that of any other attribute.
    if TYPE_CHECKING:

        def __get__(self, options: object, owner: type) -> _Kept: ...

    def __set__(self, options: object, value: _Given) -> None:
        # A dataclass gives the field's default, which is the option itself.
        options.__dict__[self.attribute] = self.default if value is self else self._named(self._check, value)

    def read(self, text: str) -> _Kept:
        return self._named(lambda given: self._check(self._read(given)), text)

    def _named(self, take: Callable[[Any], _Kept], value: object) -> _Kept:
        try:
            return take(value)
        except ConfigurationError as error:
            text = str(error)
            name = "" if self.name in text else f"{self.name} " if text[:1].islower() else f"{self.name}: "
            raise ConfigurationError(name + text) from None

    def __repr__(self) -> str:
        return repr(self.default)  # as a dataclass's signature shows it


def _duration(
    name: str, default: int | None, least: int, most: int | None = None, refusal: str = ""
) -> Option[Any, Any]:
    """Return an option of a duration; without a maximum, it may be None, which is for ever."""
    limits = f"at least {_words(least)}" if most is None else f"from {_words(least)} to {_words(most)}"

    def check(given: Duration | None) -> int | None:
        value = _FOREVER_MS if given is None and most is None else _milliseconds(given)
        if most is None and value >= _FOREVER_MS:
            return None
        if refusal and most is not None and value > most:
            raise ConfigurationError(f"{refusal} Parameter name: {name}. Actual value was {_words(value)}.")
        if value < least or (most is not None and value > most):
            is_number = isinstance(given, int) and value < least
            hint = ', and a number counts milliseconds: write timedelta(seconds=30) or "30s"' if is_number else ""
            raise ConfigurationError(f"must be {limits}, not {_words(value)}{hint}.")
        return value

    values = f"{limits}; without a value, for ever" if most is None else limits.removeprefix("from ")
    return Option(name, default, check, parse_duration, format_duration, values=values)


def _words(milliseconds: int) -> str:
    for size, unit in ((_DAY, "day"), (_MINUTE, "minute")):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}{'s' * (milliseconds != size)}"
    return f"{milliseconds / _SECOND:g} second{'s' * (milliseconds != _SECOND)}"


def _milliseconds(given: object) -> int:
    if isinstance(given, timedelta):
        return given // timedelta(milliseconds=1)
    if isinstance(given, str):
        match = _SHORT.fullmatch(given.strip().lower())
        return _sum_of(*match.groups()) if match and any(match.groups()) else parse_duration(given)
    return _typed(given, int)


def _typed(given: Any, kind: Any) -> Any:
    if not isinstance(given, kind) or (kind is int and isinstance(given, bool)):
        raise ConfigurationError(f"is of the wrong type: {type(given).__name__}.")
    return given


def _number(name: str, default: _Kept, least: int, most: int) -> Option[_Kept, _Kept]:
    def check(given: Any) -> Any:
        value = None if given is default is None else _typed(given, int)
        if value is not None and not least <= value <= most:
            raise ConfigurationError(f"must be from {least} to {most}.")
        return value

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > len(str(_MAX_INT)):
            raise ConfigurationError(f"must be a number from {least} to {most}, not {text[:40]!r}.")
        return int(text)

    values = f"{least:,} to {most:,}"
    return Option(name, default, check, read, lambda value: None if value is None else str(value), values=values)


def _flag(name: str, *, default: bool = False, is_fixed: bool = False) -> Option[bool, bool]:
    def read(text: str) -> bool:
        if text.lower() not in ("true", "1", "false", "0"):  # as in XML Schema
            raise ConfigurationError(f"is neither true nor false: {text[:40]!r}.")
        return text.lower() in ("true", "1")

    return Option(
        name,
        default,
        partial(_typed, kind=bool),
        read,
        lambda value: str(value).lower(),
        values="`true` or `false`",
        is_fixed=is_fixed,
    )


def _text(name: str, expect: Callable[[str], None], values: str) -> Option[str | None, str | None]:
    def check(given: str | None) -> str | None:
        if _typed(given, str | None):
            expect(str(given))
        return given

    return Option(name, None, check, values=values)


def _expect_target(text: str) -> None:
    name = forwarding_target(text)
    if EntityAddress.parse(name).path != name:
        raise ConfigurationError(f"is not the name or address of a queue or topic: {text[:80]!r}.")


def _expect_short(text: str) -> None:
    if len(text) > _MAX_METADATA:
        raise ConfigurationError(f"has at most {_MAX_METADATA} characters.")


def _status(given: object) -> EntityStatus:
    try:
        return EntityStatus(given)
    except ValueError:
        raise ConfigurationError(f"is none of {', '.join(EntityStatus)}: {str(given)[:40]!r}.") from None


_TARGET: Final = "the name or the address of a queue or topic"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of queues, topics and subscriptions alike."""

    default_time_to_live: Option[Duration | None, int | None] = _duration("DefaultMessageTimeToLive", None, _SECOND)
    auto_delete_on_idle: Option[Duration | None, int | None] = _duration("AutoDeleteOnIdle", None, 5 * _MINUTE)
    status: Option[EntityStatus | str, EntityStatus] = Option(
        "Status", EntityStatus.ACTIVE, _status, values=", ".join(f"`{each}`" for each in EntityStatus)
    )
    enable_batched_operations: Option[bool, bool] = _flag("EnableBatchedOperations", default=True)
    user_metadata: Option[str | None, str | None] = _text(
        "UserMetadata", _expect_short, f"a text of at most {_MAX_METADATA:,} characters"
    )


@dataclass(frozen=True)
class ReceivingOptions(Options):
    # In the words of Service Bus: its documentation, "Azure Service Bus - Resource Manager exceptions".
    lock_duration: Option[Duration, int] = _duration(
        "LockDuration",
        _MINUTE,
        5 * _SECOND,
        5 * _MINUTE,
        "SubCode=40000. The supplied lock time exceeds the allowed maximum of '5' minutes.",
    )
    max_delivery_count: Option[int, int] = _number("MaxDeliveryCount", 10, 1, _MAX_INT)
    requires_session: Option[bool, bool] = _flag("RequiresSession", is_fixed=True)
    dead_letter_on_expiration: Option[bool, bool] = _flag("DeadLetteringOnMessageExpiration")
    forward_to: Option[str | None, str | None] = _text("ForwardTo", _expect_target, _TARGET)
    forward_dead_letters_to: Option[str | None, str | None] = _text(
        "ForwardDeadLetteredMessagesTo", _expect_target, _TARGET
    )


@dataclass(frozen=True)
class DestinationOptions(Options):
    requires_duplicate_detection: Option[bool, bool] = _flag("RequiresDuplicateDetection", is_fixed=True)
    duplicate_detection_window: Option[Duration, int] = _duration(
        "DuplicateDetectionHistoryTimeWindow", 10 * _MINUTE, 20 * _SECOND, 7 * _DAY
    )
    max_size_mb: Option[int, int] = _number("MaxSizeInMegabytes", 1024, 1, MAX_SIZE_MB)
    max_message_size_kb: Option[int | None, int | None] = _number("MaxMessageSizeInKilobytes", None, 1, 102_400)
    enable_partitioning: Option[bool, bool] = _flag("EnablePartitioning", is_fixed=True)
    enable_express: Option[bool, bool] = _flag("EnableExpress")
    authorization_rules: tuple[AuthorizationRule, ...] = ()


@dataclass(frozen=True)
class QueueOptions(DestinationOptions, ReceivingOptions):
    """Options of a queue. A duration is a timedelta, a text such as ``"30s"``, or milliseconds.

    Args:
        lock_duration: how long a peek-lock, or the lock of a session, lasts: 5 seconds to 5 minutes; default a minute.
        max_delivery_count: failed deliveries after which a message is dead-lettered, from 1; default 10.
        requires_session: messages have a session id, and are received session by session.
        default_time_to_live: after which messages expire that do not ask for less; at least a second; None for never.
        dead_letter_on_expiration: whether expired messages are dead-lettered, and not dropped.
        requires_duplicate_detection: messages whose id was seen within the window are dropped.
        duplicate_detection_window: 20 seconds to 7 days; default 10 minutes.
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
        user_metadata: any text, of at most 1024 characters.
        authorization_rules: keys for this queue alone.

    Raises:
        ConfigurationError: a value is out of its range.

    Example:
        >>> QueueOptions(lock_duration="30s") == QueueOptions(lock_duration=timedelta(seconds=30))
        True
    """


@dataclass(frozen=True)
class TopicOptions(DestinationOptions):
    """Options of a topic; the fields are those of ``QueueOptions``, and two of its own.

    Args:
        support_ordering: kept and given back; the emulator always keeps the order.
        filter_messages_before_publishing: kept and given back.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    support_ordering: Option[bool, bool] = _flag("SupportOrdering", default=True)
    filter_messages_before_publishing: Option[bool, bool] = _flag("FilteringMessagesBeforePublishing")


@dataclass(frozen=True)
class SubscriptionOptions(ReceivingOptions):
    """Options of a subscription; the fields are those of ``QueueOptions``, and one of its own.

    Args:
        dead_letter_on_filter_errors: whether a message that a rule cannot be evaluated for is
            dead-lettered, and not dropped.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    dead_letter_on_filter_errors: Option[bool, bool] = _flag("DeadLetteringOnFilterEvaluationExceptions", default=True)


_O = TypeVar("_O", bound=Options)


def forwarding_of(options: Options) -> dict[str, str]:
    """Return where an entity forwards its messages and its dead letters to, by the names of the attributes."""
    names = ("forward_to", "forward_dead_letters_to")
    return {name: target for name in names if (target := getattr(options, name, None))}


@cache
def options_of(kind: type[Options]) -> dict[str, Option[Any, Any]]:
    """Return the options that have a text in Service Bus, by their names there, in the order of the class."""
    defaults: list[Any] = [each.default for each in fields(kind)]
    return {each.name: each for each in defaults if isinstance(each, Option)}


def texts_of(options: Options) -> dict[str, str]:
    """Return the options as Service Bus writes them, by their names there; those without a value are left out."""
    written = ((name, each.write(vars(options)[each.attribute])) for name, each in options_of(type(options)).items())
    return {name: text for name, text in written if text is not None}


def read_options(kind: type[_O], texts: Mapping[str, str], known: _O | None = None) -> _O:
    values: dict[str, Any] = {}
    for name, option in options_of(kind).items():
        if texts.get(name):
            values[option.attribute] = option.read(texts[name])
        elif known is not None and option.is_fixed:
            values[option.attribute] = vars(known)[option.attribute]
    return kind(**values)
