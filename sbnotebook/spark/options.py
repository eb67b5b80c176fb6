"""The options of ``format("servicebus")``, read and checked once, on the driver.

A field declares its option: the name, how its text is read, the default, and the meaning for the page of reference.

For an option that does not exist, the parser names the near match, or our name for the option of another source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import SequenceMatcher
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias, TypeVar

from sbnotebook.analysis.decoders import Decoder
from sbnotebook.analysis.decoding import decoder_for
from sbnotebook.client.targets import NamespaceTarget, secrets_of
from sbnotebook.errors import ConfigurationError, InvalidEntityAddressError, near_match
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.model.connection_strings import Hidden, scrub
from sbnotebook.settlement import Connection, Limits
from sbnotebook.spark.scrubbing import scrubbed

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


DEFAULT_MAX_MESSAGES: Final = 10_000
"""Messages of a micro-batch at most."""
AT_LEAST_ONCE: Final = "at-least-once"
_EXACTLY_ONCE: Final = "exactly-once"
_BROWSE, _CONSUME = "browse", "consume"
_SEND, _SETTLE = "send", "settle"
_MOST_TASKS: Final = 1000
_MOST_IN_FLIGHT: Final = 1000
_DECODE: Final = (
    "a decoder that `register` has handed on, or `avro:FILE` or `protobuf:FILE#MESSAGE`, whose file the driver reads; "
    "adds the columns `decoded` and `decode_error`"
)
T = TypeVar("T")
D = TypeVar("D")


class Declared(NamedTuple):
    """The name of an option for users, the function that reads its text, its meaning, and what it goes with."""

    name: str
    read: Callable[[str, str], object]
    meaning: str
    only: str | None = None


def _option(name: str, read: Callable[[str, str], T], default: D, meaning: str, only: str | None = None) -> T | D:
    """Declare an option as the field of a class."""
    declared: Any = field(default=default, metadata={Declared.__name__: Declared(name, read, meaning, only)})
    return declared


def declared_by(options: type[_Options]) -> dict[str, Declared]:
    """Return the options that the fields of a class declare."""
    return {each.name: each.metadata[Declared.__name__] for each in fields(options) if each.metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of one place; the fields of a subclass declare them."""

    PLACE: ClassVar[str]
    """The place where users give them."""
    IGNORED: ClassVar[frozenset[str]] = frozenset()
    """Spark's own options, which it hands on; in lower case."""
    entity: EntityAddress
    namespace: NamespaceTarget

    @classmethod
    def parse(cls, options: Mapping[str, Option]) -> Self:
        """Read options, whose names are case-insensitive."""
        options = hidden_options(options)  # no traceback shows their values
        values = {name: value for name, value in options.items() if name not in cls.IGNORED}
        with scrubbed(secrets_in(values)):
            refuse_unknown(values, [cls.PLACE], _PLACES)
            given = {name: each for name, each in declared_by(cls).items() if each.name.lower() in values}
            read: dict[str, Any] = {
                name: each.read(each.name, text_of(values, each.name)) for name, each in given.items()
            }
            parsed = cls(entity=entity_of(values), namespace=namespace_of(values), **read)
            parsed._check(given.values())
            return parsed

    def _check(self, given: Iterable[Declared]) -> None:
        """Refuse options that do not go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(_Options):
    """The options of `spark.read`."""

    PLACE = "spark.read"
    from_sequence_number: int = _option("fromSequenceNumber", whole(), 1, "where to begin, included")
    to_sequence_number: int | None = _option(
        "toSequenceNumber", whole(), None, "where to stop, included; the end by default"
    )
    max_messages: int | None = _option(
        "maxMessages", whole(), None, "messages at most, of one partition only; all by default"
    )
    partitions: int = _option(
        "partitions", whole(_MOST_TASKS), 1, "ranges of sequence numbers that are peeked in parallel"
    )
    state: MessageState | None = _option("state", choice(*MessageState), None, "messages in this state only")
    decode: Decoder | None = _option("decode", decoder, None, _DECODE)

    def _check(self, given: Iterable[Declared]) -> None:
        del given
        if self.to_sequence_number is not None and self.to_sequence_number < self.from_sequence_number:
            raise ConfigurationError("toSequenceNumber is not before fromSequenceNumber: exchange them.")
        if self.max_messages is not None and self.partitions > 1:
            raise ConfigurationError("maxMessages holds for one partition only: leave out one of the two options.")


def _start(name: str, value: str) -> int | None:
    return None if value.lower() == "latest" else whole()(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(_Options):
    """The options of `spark.readStream`; the first number is None for messages from now on."""

    PLACE = "spark.readStream"
    mode: str = _option(
        "mode",
        choice(_BROWSE, _CONSUME),
        _BROWSE,
        "`browse` peeks and consumes nothing; `consume` takes messages out of the entity, each exactly once",
    )
    max_messages: int = _option(
        "maxMessagesPerTrigger", whole(), DEFAULT_MAX_MESSAGES, "messages of a micro-batch at most"
    )
    max_bytes: int | None = _option(
        "maxBytesPerTrigger",
        size,
        None,
        "bytes of a micro-batch at most, of whole messages, such as `16m`; a larger message comes alone. To consume, "
        "256m by default; to browse, no limit, and with a limit the driver looks at each message",
    )
    partitions: int = _option("partitions", whole(_MOST_TASKS), 1, "tasks that read a micro-batch")
    from_sequence_number: int | None = _option(
        "fromSequenceNumber",
        _start,
        1,
        "where a new stream begins, included, or `latest` for messages from now on; a stream with a checkpoint "
        "continues from there",
        _BROWSE,
    )
    state: MessageState | None = _option(
        "state",
        choice(*MessageState),
        None,
        "messages in this state only; those in other states count in the limits",
        _BROWSE,
    )
    decode: Decoder | None = _option("decode", decoder, None, _DECODE)
    orphans: str = _option(
        "orphans",
        choice("report", "adopt", "ignore"),
        "report",
        "action for deferred messages that are not in the checkpoint when the stream starts: `report` them in the "
        "log, `adopt` them into the stream, or `ignore` them",
        _CONSUME,
    )
    delivery: str = _option(
        "delivery",
        choice(_EXACTLY_ONCE, AT_LEAST_ONCE),
        _EXACTLY_ONCE,
        "`exactly-once`, or `at-least-once`, without deferral",
        _CONSUME,
    )
    fail_on_data_loss: bool = _option(
        "failOnDataLoss",
        flag,
        True,
        "whether the stream fails when messages of a micro-batch that is read again are gone; `false` continues with "
        "the others, and warns",
        _CONSUME,
    )

    def _check(self, given: Iterable[Declared]) -> None:
        for option in given:
            _refuse_unless(option, option.only in (None, self.mode), f"mode={self.mode}")
            is_meant = self.defers or option.name != "orphans"
            _refuse_unless(option, is_meant, f"delivery={self.delivery}, which defers no messages")

    @property
    def consumes(self) -> bool:
        """Return whether the stream takes messages out of the entity."""
        return self.mode == _CONSUME

    @property
    def defers(self) -> bool:
        """Return whether a stream that consumes defers messages, or keeps them locked until they are durable."""
        return self.delivery == _EXACTLY_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(_Options):
    """The options of `frame.write` and `frame.writeStream`."""

    PLACE = "frame.write"
    IGNORED = frozenset({"checkpointlocation", "queryname"})
    operation: str = _option(
        "operation",
        choice(_SEND, _SETTLE),
        _SEND,
        "`send` sends each row as a message; `settle` carries out the decision in each row",
    )
    max_in_flight: int = _option(
        "maxInFlight",
        whole(_MOST_IN_FLIGHT),
        Limits().transfers,
        "transfers of one task that wait for their confirmation at once; a transfer holds as many messages as fit",
    )
    max_in_flight_total: int | None = _option(
        "maxInFlightTotal",
        whole(),
        None,
        "of all tasks together; it is divided by the number of tasks that can run at once",
    )
    failures_path: str | None = _option(
        "failuresPath",
        text,
        None,
        "a folder, to which rows that failed are written as Parquet; without it they fail the job",
    )
    allow_speculation: bool = _option(
        "allowSpeculation", flag, False, "`true` writes although `spark.speculation` may send messages twice"
    )
    batch_size: int | None = _option(
        "batchSize", whole(), None, "messages in one transfer at most; as many as fit by default", _SEND
    )
    rate: float | None = _option(
        "rate", per_second, None, "messages a second of a task at most; no limit by default", _SEND
    )
    archived: bool = _option(
        "archive", flag, True, "`false` removes messages for good, without a copy in the archive", _SETTLE
    )

    def _check(self, given: Iterable[Declared]) -> None:
        for option in given:
            _refuse_unless(option, option.only in (None, self.operation), f"operation={self.operation}")
        if self.sends and self.entity != self.entity.sends_to:
            raise ConfigurationError(f"Messages cannot be sent to {self.entity}: name a queue or a topic.")

    @property
    def sends(self) -> bool:
        """Return whether each row is sent, and not settled."""
        return self.operation == _SEND


def _refuse_unless(option: Declared, is_meant: bool, where: str) -> None:
    if not is_meant:
        raise ConfigurationError(f"{option.name} has no meaning with {where}: leave it out.")


def read_or_stream(options: Mapping[str, Option]) -> ReadOptions | StreamOptions:
    """Read the options of a read or else of a stream: at ``load()``, Spark does not say which of the two it plans."""
    options = hidden_options(options)
    refuse_unknown(options, [ReadOptions.PLACE, StreamOptions.PLACE], _PLACES)
    common = {name.lower() for name in EVERYWHERE}

    def count_others(kind: type[_Options]) -> int:
        return len(options.keys() - common - {name.lower() for name in _PLACES[kind.PLACE]})

    kinds = sorted((StreamOptions, ReadOptions), key=count_others)
    refused: list[ConfigurationError | InvalidEntityAddressError] = []
    for kind in kinds:
        try:
            return kind.parse(options)
        except (ConfigurationError, InvalidEntityAddressError) as error:
            refused.append(error)
    raise refused[0]  # of the one that has the most of these options


_PLACES: Final = {
    each.PLACE: [one.name for one in declared_by(each).values()] for each in (ReadOptions, StreamOptions, WriteOptions)
}
