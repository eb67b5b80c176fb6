"""A parser for the options of ``format("servicebus")``, which refuses wrong names and values.

For an option that does not exist, it names the near match, or our name for the option of another source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, TypeAlias, TypeVar

from sbnotebook.analysis.decoders import Decoder
from sbnotebook.analysis.decoding import decoder_for
from sbnotebook.client.targets import NamespaceTarget, secrets_of
from sbnotebook.errors import ConfigurationError, near_match
from sbnotebook.model import EntityAddress
from sbnotebook.model.secret_texts import Hidden, scrub
from sbnotebook.settlement import Connection

MAX_NUMBER: Final = 2**63 - 1
"""The greatest sequence number."""

_CONNECTION_STRINGS: Final = ("connectionString", "secret.connectionString")
_TARGETS: Final = (*_CONNECTION_STRINGS, "fullyQualifiedNamespace", "target")
EVERYWHERE: Final = ("entity", *_TARGETS, "credential")
_SHOWN: Final = 40
_SIZE: Final = re.compile(r"([0-9]{1,18})([kmg]?)b?", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_EMPTY: Final = Hidden("")
Choice = TypeVar("Choice", bound=str)
Option: TypeAlias = str | Hidden | NamespaceTarget
"""The value of an option; a target is that of a registered connection string."""
Values: TypeAlias = Mapping[str, Hidden | NamespaceTarget]
"""Options by their lower-case names."""
_MOST_AT_ONCE: Final = ("maxMessagesPerTrigger", "maxMessages")
_FOREIGN: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    foreign: (ours, note)
    for ours, names, note in (
        (("entity",), "subscribe subscribePattern assign topic topicName", ""),
        (("entity",), "queue queueName entityPath table eventhubs.name", ""),
        (
            ("entity",),
            "subscription subscriptionName consumerGroup eventhubs.consumerGroup kafka.group.id groupIdPrefix",
            ", where a subscription is TOPIC/subscriptions/NAME",
        ),
        (
            ("entity",),
            "subQueue sub_queue deadLetter deadLetterQueue",
            ", where a dead-letter queue is orders/$dlq",
        ),
        (("fullyQualifiedNamespace",), "namespace host hostname endpoint kafka.bootstrap.servers", ""),
        (("connectionString",), "connection eventhubs.connectionString servicebus.connectionString", ""),
        (("fromSequenceNumber",), "startingOffsets startingOffset startingPosition startingPositions", ""),
        (("fromSequenceNumber",), "startingTimestamp startingVersion initialPosition eventhubs.startingPosition", ""),
        (("toSequenceNumber",), "endingOffsets endingPosition endingTimestamp eventhubs.endingPosition", ""),
        (
            _MOST_AT_ONCE,
            "maxOffsetsPerTrigger maxEventsPerTrigger maxRowsPerTrigger maxFilesPerTrigger rowsPerBatch",
            "",
        ),
        (_MOST_AT_ONCE[::-1], "limit", ""),
        (("partitions",), "minPartitions numPartitions", ""),
        (("mode",), "receiveMode readMode", ""),
        (("maxInFlight",), "concurrency", ""),
    )
    for foreign in names.split()
}
"""Options of Kafka, Event Hubs, Kinesis, Delta Lake and of the Service Bus SDKs: ours, best first, and a note."""
_SPELLED: Final = {name.lower(): name for name in _FOREIGN}


def refuse_unknown(options: Values, here: Sequence[str], places: Mapping[str, Collection[str]]) -> None:
    """Refuse an option that these places do not have."""
    known = dict.fromkeys((*EVERYWHERE, *(name for place in here for name in places[place])))
    elsewhere = {place: names for place, names in places.items() if place not in here}
    for name in sorted(options.keys() - {each.lower() for each in known}):
        raise ConfigurationError(_sentence_about(name, " and ".join(here), known, elsewhere))


def entity_of(options: Values) -> EntityAddress:
    """Return the entity."""
    path = text_of(options, "entity")
    if not path:
        raise ConfigurationError('The entity is missing: .option("entity", "orders/$dlq").')
    return EntityAddress.parse(path)


def namespace_of(options: Values) -> NamespaceTarget:
    """Return the namespace."""
    given = [name for name in _TARGETS if options.get(name.lower(), _EMPTY) != _EMPTY]
    if len(given) != 1:
        raise ConfigurationError(f"Give exactly one of the options {', '.join(_TARGETS)}.")
    (name,) = given
    value = options[name.lower()]
    if isinstance(value, NamespaceTarget):
        return value
    if "credential" in options:
        return _with_credential(name, value, text("credential", text_of(options, "credential")))
    if name == "target" and value.reveal().startswith("env:"):
        value = _from_environment(value.reveal().removeprefix("env:"))
    is_connection_string = "endpoint=" in value.reveal().lower()
    if is_connection_string:
        Connection(value)  # refuses one that cannot be read
    if name != "target" and is_connection_string != (name in _CONNECTION_STRINGS):
        raise ConfigurationError(
            f"{name} holds a whole connection string, Endpoint=sb://… and so on; of a Databricks secret, give what "
            "dbutils.secrets.get(SCOPE, KEY) returns."
            if name in _CONNECTION_STRINGS
            else f"{name} holds a host name, NAME.servicebus.windows.net; a connection string goes into "
            "connectionString."
        )
    return NamespaceTarget(value)


def _with_credential(name: str, host: Hidden, credential: str) -> NamespaceTarget:
    if name != "fullyQualifiedNamespace" or set("@;=") & {*credential}:
        raise ConfigurationError(
            "credential is the name of a service credential of Unity Catalog, and goes with "
            "fullyQualifiedNamespace, NAME.servicebus.windows.net."
        )
    return NamespaceTarget(f"credential:{credential}@{host.reveal()}")


# ---------------------------------------------------------------------- kinds of options


def text(name: str, value: str) -> str:
    """Return a text."""
    if not value:
        raise ConfigurationError(f"{name} is empty: leave it out, or give it a value.")
    return value


def whole(most: int = MAX_NUMBER) -> Callable[[str, str], int]:
    """Return what reads a whole number from 1 on."""

    def read(name: str, value: str) -> int:
        if not (value.isascii() and value.isdecimal() and 1 <= int(value[:_SHOWN]) <= most):
            upper = ", 1 or more" if most == MAX_NUMBER else f" from 1 to {most:,}"
            raise ConfigurationError(f"{name} is a whole number{upper}, not {_quoted(value)}.")
        return int(value)

    return read


def size(name: str, value: str) -> int:
    """Return a number of bytes, given as ``500000``, ``64k``, ``16m`` or ``1g``."""
    found = _SIZE.fullmatch(value)
    size = int(found[1]) * _UNITS[found[2].lower()] if found else 0
    if size < 1:
        raise ConfigurationError(f"{name} is a number of bytes such as 500000, 64k, 16m or 1g, not {_quoted(value)}.")
    return size


def per_second(name: str, value: str) -> float:
    """Return a number of messages a second."""
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise ConfigurationError(f"{name} is a number of messages a second above 0, not {_quoted(value)}.")
    return rate


def flag(name: str, value: str) -> bool:
    """Return whether an option is ``true``."""
    if value.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name} is true or false, not {_quoted(value)}.")
    return value.lower() == "true"


def decoder(name: str, value: str) -> Decoder:
    """Return a decoder with a schema, by its name or its file."""
    try:
        found = decoder_for(text(name, value))
    except ConfigurationError as error:
        if ":" in value:
            raise
        raise ConfigurationError(
            f"{error} Then call register(spark) again, which hands on the decoders that have a schema."
        ) from None
    if found.schema is None:
        raise ConfigurationError(
            f"The decoder {_quoted(value)} has no schema, which Spark needs: "
            "sbnotebook.decoder(name, function, schema=pyarrow.schema(…))."
        )
    return found


def choice(*values: Choice) -> Callable[[str, str], Choice]:
    """Return what reads one of some values."""

    def read(name: str, value: str) -> Choice:
        for each in values:
            if each == value.lower():
                return each
        raise ConfigurationError(f"{name} is {' or '.join(values)}, not {_quoted(value)}.")

    return read


# ---------------------------------------------------------------------- names, and secrets


def hidden_options(options: Mapping[str, Option]) -> dict[str, Hidden | NamespaceTarget]:
    """Return options with lower-case names, and with values that no traceback shows.

    The path of ``load("orders")`` and ``save("orders")`` is the entity.
    """
    named = {
        name.lower(): Hidden(value.strip()) if isinstance(value, str) else value for name, value in options.items()
    }
    path = named.pop("path", None)
    if path is not None and named.setdefault("entity", path) != path:
        raise ConfigurationError('Name the entity once: .load("orders"), or .option("entity", "orders").')
    return named


def text_of(options: Values, name: str) -> str:
    """Return the text of an option; the empty text for none."""
    value = options.get(name.lower(), _EMPTY)
    return value.reveal() if isinstance(value, Hidden) else ""


def secrets_in(options: Values) -> list[str]:
    """Return the texts in options that must not be shown, also under a misspelt name."""
    secrets: list[str] = []
    for name, value in options.items():
        if isinstance(value, NamespaceTarget):
            secrets += value.secrets
        elif name in map(str.lower, _TARGETS) or scrub(value.reveal()) != value.reveal():
            secrets += secrets_of(value)
    return secrets


def _quoted(text: str) -> str:
    return repr(text[:_SHOWN])


def _from_environment(variable: str) -> Hidden:
    """Return the target in a variable of this machine: those of the workers may differ."""
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
                use = next((ours for ours in known if ours.startswith(each)), place)
                return f"{each} is an option of {place}, and this is {here}: use {use}, or leave it out."
    if name in _SPELLED:
        return _about_foreign(_SPELLED[name], here, known, elsewhere)
    near = near_match(name, known)
    if near is None:
        return f"There is no option {name[:_SHOWN]!r} in {here}; there are {', '.join(known)}."
    return f"There is no option {_spelled_like(name, near)[:_SHOWN]!r} in {here}; did you mean {near}?"


def _about_foreign(name: str, here: str, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    ours, note = _FOREIGN[name]
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
