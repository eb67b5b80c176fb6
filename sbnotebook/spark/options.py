"""The options of ``format("servicebus")``, read and checked once, on the driver.

A field declares its option: the name, how its text is read, the default, and the meaning for the page of reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from sbnotebook.analysis.decoders import Decoder
from sbnotebook.errors import ConfigurationError, InvalidEntityAddressError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.settlement import Limits
from sbnotebook.spark.option_parser import (
    EVERYWHERE,
    NamespaceTarget,
    Option,
    choice,
    decoder,
    entity_of,
    flag,
    hidden_options,
    namespace_of,
    per_second,
    refuse_unknown,
    secrets_in,
    size,
    text,
    text_of,
    whole,
)
from sbnotebook.spark.scrubbing import scrubbed

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
