"""The options of ``format("servicebus")``, read and checked once, on the driver.

=======================  ==========================================================================================
entity                   ``orders``, ``orders/$dlq``, ``events/subscriptions/audit``; to write, a queue or a topic
connectionString         one of these four says which namespace; by ``.option(…)`` only: SQL's ``OPTIONS`` show it
secret.connectionString  the same under a name that Spark hides, in SQL's ``OPTIONS``, too
fullyQualifiedNamespace  ``NAME.servicebus.windows.net``, with the DefaultAzureCredential of the driver and workers
target                   ``emulator``, or ``env:VARIABLE``, which is read on the driver
fromSequenceNumber       to read: where to begin, included; 1 by default
toSequenceNumber         to read: where to stop, included; the end by default
maxMessages              to read: messages at most, of one partition only; all by default
partitions               to read: ranges of sequence numbers that are peeked in parallel; 1 by default
state                    to read: ``active``, ``deferred`` or ``scheduled`` messages only
maxInFlight              to write: transfers of a task that wait for their confirmation at once; 10 by default
batchSize                to write: messages in one transfer at most; as many as fit by default
rate                     to write: messages a second of a task at most; no limit by default
=======================  ==========================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sbnotebook.client.targets import resolve
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.settlement import Connection
from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT
from sbnotebook.spark.scrubbing import scrubbed, secrets_of

__all__ = ["NamespaceTarget", "ReadOptions", "WriteOptions"]

_CONNECTION_STRINGS: Final = ("connectionString", "secret.connectionString")
_TARGETS: Final = (*_CONNECTION_STRINGS, "fullyQualifiedNamespace", "target")
_READ: Final = ("fromSequenceNumber", "toSequenceNumber", "maxMessages", "partitions", "state")
_WRITE: Final = ("maxInFlight", "batchSize", "rate")
_MAX_PARTITIONS: Final = 1000
_MAX_NUMBER: Final = 2**63 - 1
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class NamespaceTarget:
    """Which namespace is meant. It can be pickled, and is resolved in each process that connects.

    Args:
        text: a connection string, a host name, or ``emulator``.
    """

    text: str = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        return secrets_of(self.text)

    def connection(self) -> Connection:
        """A connection of this process's own.

        Raises:
            ConfigurationError: the target cannot be used here.
            EmulatorStartError: the emulator could not be started.
        """
        return resolve(self.text).connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        namespace: where it is.
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
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options of ``spark.read``; upper and lower case are the same in their names.

        Raises:
            ConfigurationError: a name or a value is wrong, or one is missing.
        """
        given = _Given(options, _READ)
        with scrubbed(given.secrets):
            parsed = cls(
                entity=given.entity(),
                namespace=given.namespace(),
                from_sequence_number=given.whole("fromSequenceNumber", most=_MAX_NUMBER) or 1,
                to_sequence_number=given.whole("toSequenceNumber", most=_MAX_NUMBER),
                max_messages=given.whole("maxMessages", most=_MAX_NUMBER),
                partitions=given.whole("partitions", most=_MAX_PARTITIONS) or 1,
                state=given.state(),
            )
            if parsed.to_sequence_number is not None and parsed.to_sequence_number < parsed.from_sequence_number:
                raise ConfigurationError("toSequenceNumber is not before fromSequenceNumber: exchange them.")
            if parsed.max_messages is not None and parsed.partitions > 1:
                raise ConfigurationError("maxMessages holds for one partition only: leave out one of the two options.")
            return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How rows are sent.

    Args:
        entity: a queue or a topic.
        namespace: where it is.
        max_in_flight: transfers of a task that wait for their confirmation at once.
        batch_size: messages in one transfer at most, None for as many as fit.
        rate: messages a second of a task at most, None for no limit.
    """

    entity: EntityAddress
    namespace: NamespaceTarget
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    batch_size: int | None = None
    rate: float | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of ``frame.write``; upper and lower case are the same in their names.

        Raises:
            ConfigurationError: a name or a value is wrong, or one is missing.
        """
        given = _Given(options, _WRITE)
        with scrubbed(given.secrets):
            entity = given.entity()
            if entity != entity.sends_to:
                raise ConfigurationError(f"Messages cannot be sent to {entity}: name a queue or a topic.")
            return cls(
                entity=entity,
                namespace=given.namespace(),
                max_in_flight=given.whole("maxInFlight", most=1000) or DEFAULT_MAX_IN_FLIGHT,
                batch_size=given.whole("batchSize", most=_MAX_NUMBER),
                rate=given.rate(),
            )


class _Given:
    """The options as the user gave them, by the lower case of their names, as Spark hands them on."""

    def __init__(self, options: Mapping[str, str], names: Iterable[str]) -> None:
        self._values = {name.lower(): value.strip() for name, value in options.items()}
        known = ("entity", *_TARGETS, *names)
        for name in self._values.keys() - {name.lower() for name in known}:
            raise ConfigurationError(f"There is no option {name[:_SHOWN]!r} here; there are {', '.join(known)}.")

    @property
    def secrets(self) -> list[str]:
        found = [secrets_of(self._values.get(name.lower(), "")) for name in _TARGETS]
        return [secret for secrets in found for secret in secrets]

    def entity(self) -> EntityAddress:
        text = self._values.get("entity")
        if not text:
            raise ConfigurationError('The entity is missing: .option("entity", "orders/$dlq").')
        return EntityAddress.parse(text)

    def namespace(self) -> NamespaceTarget:
        given = [name for name in _TARGETS if self._values.get(name.lower())]
        if len(given) != 1:
            raise ConfigurationError(f"Give exactly one of the options {', '.join(_TARGETS)}.")
        (name,) = given
        value = self._values[name.lower()]
        if name == "target" and value.startswith("env:"):
            value = _from_environment(value.removeprefix("env:"))
        is_connection_string = "endpoint=" in value.lower()
        if is_connection_string:
            Connection(value)  # refuses one that cannot be read
        if name != "target" and is_connection_string != (name in _CONNECTION_STRINGS):
            raise ConfigurationError(
                "connectionString holds a whole connection string, Endpoint=sb://… and so on, "
                "and fullyQualifiedNamespace a host name, NAME.servicebus.windows.net."
            )
        return NamespaceTarget(value)

    def whole(self, name: str, *, most: int) -> int | None:
        text = self._values.get(name.lower())
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:_SHOWN]) <= most):
            upper = "more" if most == _MAX_NUMBER else f"at most {most:,}"
            raise ConfigurationError(f"{name} is a whole number, 1 or {upper}, not {text[:_SHOWN]!r}.")
        return int(text)

    def rate(self) -> float | None:
        text = self._values.get("rate")
        try:
            rate = None if text is None else float(text)
        except ValueError:
            rate = 0.0
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigurationError(f"rate is a number of messages a second above 0, not {str(text)[:_SHOWN]!r}.")
        return rate

    def state(self) -> MessageState | None:
        text = self._values.get("state")
        try:
            return None if text is None else MessageState(text.lower())
        except ValueError:
            raise ConfigurationError(f"state is {' or '.join(MessageState)}, not {str(text)[:_SHOWN]!r}.") from None


def _from_environment(variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value or value.startswith("env:"):
        raise ConfigurationError(
            f"Spark's driver has no target in the environment variable {variable[:_SHOWN]}: "
            "set it before the Spark session starts."
        )
    return value
