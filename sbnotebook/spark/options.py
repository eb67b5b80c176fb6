"""The options of ``format("servicebus")``, read and checked once, on the driver.

For all:

=======================  ==========================================================================================
entity                   ``orders``, ``orders/$dlq``, ``events/subscriptions/audit``; to send, a queue or a topic
connectionString         exactly one of these four names the namespace. Give this one by ``.option(…)`` only, and not
                         with Spark Connect: SQL's ``OPTIONS``, Spark's settings and Spark Connect show it
secret.connectionString  the same under a name that Spark hides in SQL's ``OPTIONS`` and its settings, too
fullyQualifiedNamespace  ``NAME.servicebus.windows.net``, with the connection string for it that
                         :func:`sbnotebook.spark.register` was given, or else with the DefaultAzureCredential of the
                         driver and workers
target                   ``emulator``, or ``env:VARIABLE``, which is read on the driver
=======================  ==========================================================================================

To read (``spark.read``):

=======================  ==========================================================================================
fromSequenceNumber       where to begin, included; 1 by default
toSequenceNumber         where to stop, included; the end by default
maxMessages              messages at most, of one partition only; all by default
partitions               ranges of sequence numbers that are peeked in parallel; 1 by default
state                    ``active``, ``deferred`` or ``scheduled`` messages only
=======================  ==========================================================================================

To stream (``spark.readStream``):

=======================  ==========================================================================================
mode                     ``browse`` (by default) peeks onward and consumes nothing; ``consume`` takes messages out of
                         the entity, each exactly once
maxMessagesPerTrigger    messages of a micro-batch at most; 10,000 by default
maxBytesPerTrigger       bytes of a micro-batch at most, ``16m`` for example; a message that is larger comes alone. To
                         consume, 256m by default; to browse, no limit
partitions               tasks that read a micro-batch; 1 by default
fromSequenceNumber       to browse: where a new stream begins, included, or ``latest`` for messages from now on
state                    to browse: messages in this state only
orphans                  to consume: action for deferred messages that are not in the checkpoint when the stream starts:
                         ``report`` them in the log (by default), ``adopt`` them into the stream, or ``ignore`` them
delivery                 to consume: ``exactly-once`` (by default), or ``at-least-once``, without deferral
failOnDataLoss           to consume: whether the stream fails (by default) when messages of a micro-batch that is read
                         again are gone; ``false`` continues with the others, and warns
=======================  ==========================================================================================

To write (``frame.write`` and ``frame.writeStream``):

=======================  ==========================================================================================
operation                ``send`` (by default) sends each row as a message; ``settle`` carries out the decision in
                         each row
maxInFlight              transfers of a task that wait for their confirmation at once; 10 by default
maxInFlightTotal         of all tasks together; it is divided by the number of tasks that can run at once
failuresPath             a folder, to which rows that failed are written as Parquet; without it they fail the job
allowSpeculation         ``true`` writes although ``spark.speculation`` may send messages twice; ``false`` by default
batchSize                to send: messages in one transfer at most; as many as fit by default
rate                     to send: messages a second of a task at most; no limit by default
archive                  to settle: ``false`` removes messages for good, without a copy in the archive
=======================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sbnotebook.client.scrubbing import scrubbed
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import transfers_in_flight
from sbnotebook.spark.option_parser import NamespaceTarget, Option, OptionParser, hidden_options

__all__ = [
    "DEFAULT_MAX_MESSAGES",
    "Delivery",
    "Mode",
    "Operation",
    "Orphans",
    "ReadOptions",
    "StreamOptions",
    "WriteOptions",
    "check_names",
]

_READ: Final = ("fromSequenceNumber", "toSequenceNumber", "maxMessages", "partitions", "state")
_BROWSE: Final = ("fromSequenceNumber", "state")
_CONSUME: Final = ("orphans", "delivery", "failOnDataLoss")
_STREAM: Final = ("mode", "maxMessagesPerTrigger", "maxBytesPerTrigger", "partitions", *_BROWSE, *_CONSUME)
_SEND: Final = ("batchSize", "rate")
_SETTLE: Final = ("archive",)
_WRITE: Final = (
    "operation",
    "maxInFlight",
    "maxInFlightTotal",
    "failuresPath",
    "allowSpeculation",
    *_SEND,
    *_SETTLE,
)
_PLACES: Final = {"spark.read": _READ, "spark.readStream": _STREAM, "frame.write": _WRITE}
_MAX_PARTITIONS: Final = 1000
_MAX_IN_FLIGHT: Final = 1000
DEFAULT_MAX_MESSAGES: Final = 10_000
"""Messages of a micro-batch at most."""


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


def check_names(options: Mapping[str, Option]) -> None:
    """Refuse an option that neither a read nor a stream has: Spark does not say which of the two it plans.

    Raises:
        ConfigurationError: there is no such option, or the entity or the namespace is missing.
    """
    options = hidden_options(options)
    given = OptionParser(options, ["spark.read", "spark.readStream"], _PLACES)
    with scrubbed(given.secrets):
        given.entity()
        given.namespace()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of ``spark.read``.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        namespace: of the entity.
        from_sequence_number: where to begin, included.
        to_sequence_number: where to stop, included; None for the end.
        max_messages: messages at most, None for all.
        partitions: ranges of sequence numbers that are peeked in parallel.
        state: only messages in this state.
    """

    entity: EntityAddress
    namespace: NamespaceTarget
    from_sequence_number: int = 1
    to_sequence_number: int | None = None
    max_messages: int | None = None
    partitions: int = 1
    state: MessageState | None = None

    @classmethod
    def parse(cls, options: Mapping[str, Option]) -> ReadOptions:
        """Read the options of ``spark.read``; their names are case-insensitive.

        Raises:
            ConfigurationError: a name or a value is wrong, or one is missing.
        """
        options = hidden_options(options)
        given = OptionParser(options, ["spark.read"], _PLACES)
        with scrubbed(given.secrets):
            parsed = cls(
                entity=given.entity(),
                namespace=given.namespace(),
                from_sequence_number=given.whole("fromSequenceNumber") or 1,
                to_sequence_number=given.whole("toSequenceNumber"),
                max_messages=given.whole("maxMessages"),
                partitions=given.whole("partitions", most=_MAX_PARTITIONS) or 1,
                state=given.choice("state", MessageState),
            )
            if parsed.to_sequence_number is not None and parsed.to_sequence_number < parsed.from_sequence_number:
                raise ConfigurationError("toSequenceNumber is not before fromSequenceNumber: exchange them.")
            if parsed.max_messages is not None and parsed.partitions > 1:
                raise ConfigurationError("maxMessages holds for one partition only: leave out one of the two options.")
            return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of ``spark.readStream``.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        namespace: of the entity.
        mode: whether to browse or to consume messages.
        max_messages: messages of a micro-batch at most.
        max_bytes: bytes of a micro-batch at most, None for no limit.
        partitions: tasks that read a micro-batch.
        from_sequence_number: to browse: where a new stream begins, included; None for messages from now on.
        state: to browse: only messages in this state.
        orphans: to consume: the treatment of deferred messages that are in no checkpoint.
        delivery: to consume: whether a message may come again.
        fail_on_data_loss: to consume: whether the stream fails when messages to be read again are gone.
    """

    entity: EntityAddress
    namespace: NamespaceTarget
    mode: Mode = Mode.BROWSE
    max_messages: int = DEFAULT_MAX_MESSAGES
    max_bytes: int | None = None
    partitions: int = 1
    from_sequence_number: int | None = 1
    state: MessageState | None = None
    orphans: Orphans = Orphans.REPORT
    delivery: Delivery = Delivery.EXACTLY_ONCE
    fail_on_data_loss: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, Option]) -> StreamOptions:
        """Read the options of ``spark.readStream``; their names are case-insensitive.

        Raises:
            ConfigurationError: a name or a value is wrong, or one is missing.
        """
        options = hidden_options(options)
        given = OptionParser(options, ["spark.readStream"], _PLACES)
        with scrubbed(given.secrets):
            mode = given.choice("mode", Mode) or Mode.BROWSE
            _refuse(given, f"mode={mode}", _CONSUME if mode is Mode.BROWSE else _BROWSE)
            delivery = given.choice("delivery", Delivery) or Delivery.EXACTLY_ONCE
            if delivery is Delivery.AT_LEAST_ONCE:
                _refuse(given, f"delivery={delivery}, which defers no messages", ("orphans",))
            is_latest = (given.text("fromSequenceNumber") or "").lower() == "latest"
            return cls(
                entity=given.entity(),
                namespace=given.namespace(),
                mode=mode,
                max_messages=given.whole("maxMessagesPerTrigger") or DEFAULT_MAX_MESSAGES,
                max_bytes=given.size("maxBytesPerTrigger"),
                partitions=given.whole("partitions", most=_MAX_PARTITIONS) or 1,
                from_sequence_number=None if is_latest else given.whole("fromSequenceNumber") or 1,
                state=given.choice("state", MessageState),
                orphans=given.choice("orphans", Orphans) or Orphans.REPORT,
                delivery=delivery,
                fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of ``frame.write`` and ``frame.writeStream``.

    Args:
        entity: to send, a queue or a topic; to settle, the entity of the messages.
        namespace: of the entity.
        operation: whether rows are sent as messages, or hold decisions to carry out.
        max_in_flight: transfers of a task that wait for their confirmation at once.
        max_in_flight_total: the same for all tasks together, None for no such limit.
        failures_path: the folder to which rows that failed are written, None when they fail the job.
        allow_speculation: whether Spark may run a task twice at once, which sends its messages twice.
        batch_size: to send: messages in one transfer at most, None for as many as fit.
        rate: to send: messages a second of a task at most, None for no limit.
        archived: to settle: False to remove messages for good.
    """

    entity: EntityAddress
    namespace: NamespaceTarget
    operation: Operation = Operation.SEND
    max_in_flight: int = transfers_in_flight(AUTO)
    max_in_flight_total: int | None = None
    failures_path: str | None = None
    allow_speculation: bool = False
    batch_size: int | None = None
    rate: float | None = None
    archived: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, Option]) -> WriteOptions:
        """Read the options of ``frame.write``; their names are case-insensitive.

        Raises:
            ConfigurationError: a name or a value is wrong, or one is missing.
        """
        options = hidden_options(options)
        own = {name: value for name, value in options.items() if name not in _SPARKS_OWN}
        given = OptionParser(own, ["frame.write"], _PLACES)
        with scrubbed(given.secrets):
            operation = given.choice("operation", Operation) or Operation.SEND
            _refuse(given, f"operation={operation}", _SETTLE if operation is Operation.SEND else _SEND)
            entity = given.entity()
            if operation is Operation.SEND and entity != entity.sends_to:
                raise ConfigurationError(f"Messages cannot be sent to {entity}: name a queue or a topic.")
            return cls(
                entity=entity,
                namespace=given.namespace(),
                operation=operation,
                max_in_flight=given.whole("maxInFlight", most=_MAX_IN_FLIGHT) or transfers_in_flight(AUTO),
                max_in_flight_total=given.whole("maxInFlightTotal"),
                failures_path=given.text("failuresPath"),
                allow_speculation=given.flag("allowSpeculation", default=False),
                batch_size=given.whole("batchSize"),
                rate=given.rate("rate"),
                archived=given.flag("archive", default=True),
            )


_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options of ``writeStream``, which it hands on."""


def _refuse(given: OptionParser, where: str, names: tuple[str, ...]) -> None:
    for name in names:
        if given.text(name) is not None:
            raise ConfigurationError(f"{name} has no meaning with {where}: leave it out.")
