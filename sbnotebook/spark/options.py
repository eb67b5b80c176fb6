"""The options of ``format("servicebus")``, read and checked once, on the driver.

A field declares its option: the name, how its text is read, and the description for the page of reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Final, NamedTuple, Self, get_type_hints

from sbnotebook.analysis.decoders import Decoder
from sbnotebook.errors import ConfigurationError, InvalidEntityAddressError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import transfers_in_flight
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
_MOST_TASKS: Final = 1000
_MOST_IN_FLIGHT: Final = 1000


class Mode(StrEnum):
    """How a stream reads: browse peeks, consume removes."""

    BROWSE = "browse"
    CONSUME = "consume"


class Orphans(StrEnum):
    """The treatment of messages that are deferred when a stream starts and are not in its checkpoint."""

    REPORT = "report"
    ADOPT = "adopt"
    IGNORE = "ignore"


class Delivery(StrEnum):
    """The guarantee of a consume stream: exactly once, or at least once."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Operation(StrEnum):
    """The treatment of rows that are written."""

    SEND = "send"
    SETTLE = "settle"


class Declared(NamedTuple):
    """The name of an option for users, the function that reads its text, its description, and what it goes with."""

    name: str
    read: Callable[[str, str], object]
    meaning: str
    only: Mode | Operation | None = None


DECODE: Final = Declared(
    "decode",
    decoder,
    "a decoder that `register` has handed on, or `avro:FILE` or `protobuf:FILE#MESSAGE`, whose file the driver reads; "
    "adds the columns `decoded` and `decode_error`",
)


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
            read = {name: each.read(each.name, text_of(values, each.name)) for name, each in given.items()}
            parsed = cls(entity=entity_of(values), namespace=namespace_of(values), **read)
            parsed._check(given.values())
            return parsed

    def _check(self, given: Iterable[Declared]) -> None:
        """Refuse options that do not go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(_Options):
    """The options of `spark.read`."""

    PLACE = "spark.read"
    from_sequence_number: Annotated[int, Declared("fromSequenceNumber", whole(), "where to begin, included")] = 1
    to_sequence_number: Annotated[
        int | None, Declared("toSequenceNumber", whole(), "where to stop, included; the end by default")
    ] = None
    max_messages: Annotated[
        int | None, Declared("maxMessages", whole(), "messages at most, of one partition only; all by default")
    ] = None
    partitions: Annotated[
        int, Declared("partitions", whole(_MOST_TASKS), "ranges of sequence numbers that are peeked in parallel")
    ] = 1
    state: Annotated[MessageState | None, Declared("state", choice(MessageState), "messages in this state only")] = None
    decode: Annotated[Decoder | None, DECODE] = None

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
    mode: Annotated[
        Mode,
        Declared(
            "mode",
            choice(Mode),
            "`browse` peeks and consumes nothing; `consume` takes messages out of the entity, each exactly once",
        ),
    ] = Mode.BROWSE
    max_messages: Annotated[int, Declared("maxMessagesPerTrigger", whole(), "messages of a micro-batch at most")] = (
        DEFAULT_MAX_MESSAGES
    )
    max_bytes: Annotated[
        int | None,
        Declared(
            "maxBytesPerTrigger",
            size,
            "bytes of a micro-batch at most, of whole messages, such as `16m`; a larger message comes alone. To "
            "consume, 256m by default; to browse, no limit, and with a limit the driver looks at each message",
        ),
    ] = None
    partitions: Annotated[int, Declared("partitions", whole(_MOST_TASKS), "tasks that read a micro-batch")] = 1
    from_sequence_number: Annotated[
        int | None,
        Declared(
            "fromSequenceNumber",
            _start,
            "where a new stream begins, included, or `latest` for messages from now on; a stream with a checkpoint "
            "continues from there",
            Mode.BROWSE,
        ),
    ] = 1
    state: Annotated[
        MessageState | None,
        Declared(
            "state",
            choice(MessageState),
            "messages in this state only; those in other states count in the limits",
            Mode.BROWSE,
        ),
    ] = None
    decode: Annotated[Decoder | None, DECODE] = None
    orphans: Annotated[
        Orphans,
        Declared(
            "orphans",
            choice(Orphans),
            "action for deferred messages that are not in the checkpoint when the stream starts: `report` them in "
            "the log, `adopt` them into the stream, or `ignore` them",
            Mode.CONSUME,
        ),
    ] = Orphans.REPORT
    delivery: Annotated[
        Delivery,
        Declared("delivery", choice(Delivery), "`exactly-once`, or `at-least-once`, without deferral", Mode.CONSUME),
    ] = Delivery.EXACTLY_ONCE
    fail_on_data_loss: Annotated[
        bool,
        Declared(
            "failOnDataLoss",
            flag,
            "whether the stream fails when messages of a micro-batch that is read again are gone; `false` continues "
            "with the others, and warns",
            Mode.CONSUME,
        ),
    ] = True

    def _check(self, given: Iterable[Declared]) -> None:
        for option in given:
            _refuse_unless(option, option.only in (None, self.mode), f"mode={self.mode}")
            defers = self.delivery is Delivery.EXACTLY_ONCE or option.name != "orphans"
            _refuse_unless(option, defers, f"delivery={self.delivery}, which defers no messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(_Options):
    """The options of `frame.write` and `frame.writeStream`."""

    PLACE = "frame.write"
    IGNORED = frozenset({"checkpointlocation", "queryname"})
    operation: Annotated[
        Operation,
        Declared(
            "operation",
            choice(Operation),
            "`send` sends each row as a message; `settle` carries out the decision in each row",
        ),
    ] = Operation.SEND
    max_in_flight: Annotated[
        int,
        Declared(
            "maxInFlight",
            whole(_MOST_IN_FLIGHT),
            "transfers of one task that wait for their confirmation at once; a transfer holds as many messages as fit",
        ),
    ] = transfers_in_flight(AUTO)
    max_in_flight_total: Annotated[
        int | None,
        Declared(
            "maxInFlightTotal",
            whole(),
            "of all tasks together; it is divided by the number of tasks that can run at once",
        ),
    ] = None
    failures_path: Annotated[
        str | None,
        Declared(
            "failuresPath",
            text,
            "a folder, to which rows that failed are written as Parquet; without it they fail the job",
        ),
    ] = None
    allow_speculation: Annotated[
        bool, Declared("allowSpeculation", flag, "`true` writes although `spark.speculation` may send messages twice")
    ] = False
    batch_size: Annotated[
        int | None,
        Declared("batchSize", whole(), "messages in one transfer at most; as many as fit by default", Operation.SEND),
    ] = None
    rate: Annotated[
        float | None,
        Declared("rate", per_second, "messages a second of a task at most; no limit by default", Operation.SEND),
    ] = None
    archived: Annotated[
        bool,
        Declared("archive", flag, "`false` removes messages for good, without a copy in the archive", Operation.SETTLE),
    ] = True

    def _check(self, given: Iterable[Declared]) -> None:
        for option in given:
            _refuse_unless(option, option.only in (None, self.operation), f"operation={self.operation}")
        if self.operation is Operation.SEND and self.entity != self.entity.sends_to:
            raise ConfigurationError(f"Messages cannot be sent to {self.entity}: name a queue or a topic.")


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


def declared_by(options: type[_Options]) -> dict[str, Declared]:
    """Return the options that the fields of a class declare."""
    hints = get_type_hints(options, include_extras=True)
    return {
        name: each
        for name, hint in hints.items()
        for each in getattr(hint, "__metadata__", ())
        if type(each) is Declared
    }


_PLACES: Final = {
    each.PLACE: [one.name for one in declared_by(each).values()] for each in (ReadOptions, StreamOptions, WriteOptions)
}
