"""A parser for the options of ``format("servicebus")``, which refuses wrong names and values.

For an option that does not exist, it names the near match, or our name for the option of another source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from sbnotebook.client.scrubbing import secrets_of
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.errors import ConfigurationError, near_match
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import Connection, Hidden, scrub

__all__ = ["MAX_NUMBER", "NamespaceTarget", "Option", "OptionParser", "hidden_options", "secrets_in"]

MAX_NUMBER: Final = 2**63 - 1
"""The greatest sequence number."""

_CONNECTION_STRINGS: Final = ("connectionString", "secret.connectionString")
_TARGETS: Final = (*_CONNECTION_STRINGS, "fullyQualifiedNamespace", "target")
_EVERYWHERE: Final = ("entity", *_TARGETS)
_SHOWN: Final = 40
_SIZE: Final = re.compile(r"([0-9]{1,18})([kmg]?)b?", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_EMPTY: Final = Hidden("")
Choice = TypeVar("Choice", bound=StrEnum)
Option: TypeAlias = str | Hidden | NamespaceTarget
"""The value of an option; a target is that of a registered connection string."""
_SUBSCRIPTION: Final = ", where a subscription is TOPIC/subscriptions/NAME"
_FOREIGN: Final[Mapping[str, tuple[str, ...]]] = {
    # The entity.
    "subscribe": ("entity",),
    "subscribePattern": ("entity",),
    "assign": ("entity",),
    "topic": ("entity",),
    "topicName": ("entity",),
    "queue": ("entity",),
    "queueName": ("entity",),
    "entityPath": ("entity",),
    "table": ("entity",),
    "eventhubs.name": ("entity",),
    "subscription": ("entity",),
    "subscriptionName": ("entity",),
    "consumerGroup": ("entity",),
    "eventhubs.consumerGroup": ("entity",),
    "kafka.group.id": ("entity",),
    "groupIdPrefix": ("entity",),
    # The namespace.
    "namespace": ("fullyQualifiedNamespace",),
    "host": ("fullyQualifiedNamespace",),
    "hostname": ("fullyQualifiedNamespace",),
    "endpoint": ("fullyQualifiedNamespace",),
    "kafka.bootstrap.servers": ("fullyQualifiedNamespace",),
    "connection": ("connectionString",),
    "eventhubs.connectionString": ("connectionString",),
    "servicebus.connectionString": ("connectionString",),
    # Where to begin and to end.
    "startingOffsets": ("fromSequenceNumber",),
    "startingOffset": ("fromSequenceNumber",),
    "startingPosition": ("fromSequenceNumber",),
    "startingPositions": ("fromSequenceNumber",),
    "startingTimestamp": ("fromSequenceNumber",),
    "startingVersion": ("fromSequenceNumber",),
    "initialPosition": ("fromSequenceNumber",),
    "eventhubs.startingPosition": ("fromSequenceNumber",),
    "endingOffsets": ("toSequenceNumber",),
    "endingPosition": ("toSequenceNumber",),
    "endingTimestamp": ("toSequenceNumber",),
    "eventhubs.endingPosition": ("toSequenceNumber",),
    # How much at once.
    "maxOffsetsPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "maxEventsPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "maxRowsPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "maxFilesPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "rowsPerBatch": ("maxMessagesPerTrigger", "maxMessages"),
    "limit": ("maxMessages", "maxMessagesPerTrigger"),
    "minPartitions": ("partitions",),
    "numPartitions": ("partitions",),
    "receiveMode": ("mode",),
    "readMode": ("mode",),
    "concurrency": ("maxInFlight",),
}
"""Options of Kafka, Event Hubs, Kinesis, Delta Lake and of the Service Bus SDKs, with the names of ours, best first."""
_SPELLED: Final = {name.lower(): name for name in _FOREIGN}
_READS_A_SUBSCRIPTION: Final = frozenset(
    ("subscription", "subscriptionName", "consumerGroup", "eventhubs.consumerGroup", "kafka.group.id", "groupIdPrefix")
)


class OptionParser:
    """The options of a user; their names are case-insensitive, as in Spark.

    Args:
        options: names and values.
        here: where they are given: a key of ``places``, or several.
        places: the options that are allowed in each place, beside the entity and the namespace.

    Raises:
        ConfigurationError: there is no such option.
    """

    def __init__(
        self, options: Mapping[str, Option], here: Sequence[str], places: Mapping[str, Collection[str]]
    ) -> None:
        self._values = _with_entity(hidden_options(options))
        known = dict.fromkeys((*_EVERYWHERE, *(name for place in here for name in places[place])))
        elsewhere = {place: names for place, names in places.items() if place not in here}
        for name in sorted(self._values.keys() - {each.lower() for each in known}):
            raise ConfigurationError(_sentence_about(name, " and ".join(here), known, elsewhere))

    @property
    def secrets(self) -> list[str]:
        """Return the texts that must not be shown."""
        return secrets_in(self._values)

    def entity(self) -> EntityAddress:
        """Return the entity."""
        text = self._text("entity")
        if not text:
            raise ConfigurationError('The entity is missing: .option("entity", "orders/$dlq").')
        return EntityAddress.parse(text)

    def namespace(self) -> NamespaceTarget:
        """Return the namespace."""
        given = [name for name in _TARGETS if self._values.get(name.lower(), _EMPTY) != _EMPTY]
        if len(given) != 1:
            raise ConfigurationError(f"Give exactly one of the options {', '.join(_TARGETS)}.")
        (name,) = given
        value = self._values[name.lower()]
        if isinstance(value, NamespaceTarget):
            return value
        if name == "target":
            value = _resolved(value)
        is_connection_string = "endpoint=" in value.reveal().lower()
        if is_connection_string:
            Connection(value)  # refuses one that cannot be read
        if name != "target" and is_connection_string != (name in _CONNECTION_STRINGS):
            raise ConfigurationError(
                "connectionString holds a whole connection string, Endpoint=sb://… and so on, "
                "and fullyQualifiedNamespace a host name, NAME.servicebus.windows.net."
            )
        return NamespaceTarget(value)

    def text(self, name: str) -> str | None:
        """Return a text; None when the option is absent."""
        text = self._text(name)
        if text == "":
            raise ConfigurationError(f"{name} is empty: leave it out, or give it a value.")
        return text

    def _text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return value.reveal() if isinstance(value, Hidden) else None

    def whole(self, name: str, *, most: int = MAX_NUMBER) -> int | None:
        """Return a whole number from 1 on; None when the option is absent."""
        text = self._text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:_SHOWN]) <= most):
            upper = "more" if most == MAX_NUMBER else f"at most {most:,}"
            raise ConfigurationError(f"{name} is a whole number, 1 or {upper}, not {text[:_SHOWN]!r}.")
        return int(text)

    def size(self, name: str) -> int | None:
        """Return a number of bytes, given as ``500000``, ``64k``, ``16m`` or ``1g``; None when the option is absent."""
        text = self._text(name)
        if text is None:
            return None
        found = _SIZE.fullmatch(text)
        size = int(found[1]) * _UNITS[found[2].lower()] if found else 0
        if size < 1:
            raise ConfigurationError(
                f"{name} is a number of bytes such as 500000, 64k, 16m or 1g, not {_quoted(text)}."
            )
        return size

    def rate(self, name: str) -> float | None:
        """Return a number of messages a second; None when the option is absent."""
        text = self._text(name)
        try:
            rate = None if text is None else float(text)
        except ValueError:
            rate = 0.0
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigurationError(f"{name} is a number of messages a second above 0, not {_quoted(text)}.")
        return rate

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether an option is ``true``; the default when it is absent."""
        text = self._text(name)
        text = str(default).lower() if text is None else text.lower()
        if text not in ("true", "false"):
            raise ConfigurationError(f"{name} is true or false, not {_quoted(text)}.")
        return text == "true"

    def choice(self, name: str, kind: type[Choice]) -> Choice | None:
        """Return one of the values of an enumeration; None when the option is absent."""
        text = self._text(name)
        try:
            return None if text is None else kind(text.lower())
        except ValueError:
            raise ConfigurationError(f"{name} is {' or '.join(kind)}, not {_quoted(text)}.") from None


def _with_entity(options: Mapping[str, Hidden | NamespaceTarget]) -> Mapping[str, Hidden | NamespaceTarget]:
    """Return options in which the path of ``load("orders")`` and ``save("orders")`` is the entity."""
    named = dict(options)
    path = named.pop("path", None)
    if path is None:
        return named
    if named.setdefault("entity", path) != path:
        raise ConfigurationError('Name the entity once: .load("orders"), or .option("entity", "orders").')
    return named


def hidden_options(options: Mapping[str, Option]) -> dict[str, Hidden | NamespaceTarget]:
    """Return options with lower-case names, and with values that no traceback shows."""
    return {name.lower(): Hidden(value.strip()) if isinstance(value, str) else value for name, value in options.items()}


def secrets_in(options: Mapping[str, Option]) -> list[str]:
    """Return the texts in options that must not be shown, also under a misspelt name."""
    targets = {name.lower() for name in _TARGETS}
    values = {name: value for name, value in hidden_options(options).items() if name in targets or _looks_secret(value)}
    return [secret for value in values.values() for secret in _secrets_of(value)]


def _secrets_of(value: Hidden | NamespaceTarget) -> tuple[str, ...]:
    return value.secrets if isinstance(value, NamespaceTarget) else secrets_of(value)


def _looks_secret(value: Hidden | NamespaceTarget) -> bool:
    return isinstance(value, Hidden) and scrub(value.reveal()) != value.reveal()


def _resolved(target: Hidden) -> Hidden:
    """Return what a target means on this machine: what an environment variable holds, if it names one."""
    form, _, variable = target.reveal().partition(":")
    return _from_environment(variable) if form == "env" else target


def _quoted(text: str | None) -> str:
    return repr(str(text)[:_SHOWN])


def _from_environment(variable: str) -> Hidden:
    value = Hidden(os.environ.get(variable, "").strip())
    if value == _EMPTY or value.reveal().startswith("env:"):
        raise ConfigurationError(
            f"Spark's driver has no target in the environment variable {variable[:_SHOWN]}: "
            "set it before the Spark session starts."
        )
    return value


def _sentence_about(name: str, here: str, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    """Return a sentence about an option that does not exist here, and about what to use instead.

    Spark hands on the names of options in lower case. The sentence spells them as the user most likely did.

    Example:
        >>> _sentence_about("startingoffsets", "spark.read", ["entity", "fromSequenceNumber"], {})
        "There is no option 'startingOffsets' in spark.read; use fromSequenceNumber."
        >>> _sentence_about("mode", "spark.read", ["entity"], {"spark.readStream": ["mode"]})
        'mode is an option of spark.readStream, and this is spark.read: use spark.readStream, or leave it out.'
    """
    for place, names in elsewhere.items():
        for each in names:
            if each.lower() == name:
                return f"{each} is an option of {place}, and this is {here}: use {place}, or leave it out."
    if name in _SPELLED:
        return _about_foreign(_SPELLED[name], here, known, elsewhere)
    near = near_match(name, known)
    if near is None:
        return f"There is no option {name[:_SHOWN]!r} in {here}; there are {', '.join(known)}."
    return f"There is no option {_spelled_like(name, near)[:_SHOWN]!r} in {here}; did you mean {near}?"


def _about_foreign(name: str, here: str, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    ours = _FOREIGN[name]
    note = _SUBSCRIPTION if name in _READS_A_SUBSCRIPTION else ""
    if (use := next((each for each in ours if each in known), None)) is not None:
        return f"There is no option {name!r} in {here}; use {use}{note}."
    use = " or ".join(f"{each} of {place}" for place, names in elsewhere.items() for each in ours if each in names)
    return (
        f"There is no option {name!r} in {here}; there is {use}." if use else f"There is no option {name!r} in {here}."
    )


def _spelled_like(name: str, near: str) -> str:
    """Return a lower-case name with the capitals of a similar one.

    Example:
        >>> _spelled_like("maxmesages", "maxMessages")
        'maxMesages'
    """
    spelled = list(name)
    for block in SequenceMatcher(None, name, near.lower(), autojunk=False).get_matching_blocks():
        spelled[block.a : block.a + block.size] = near[block.b : block.b + block.size]
    return "".join(spelled)
