"""Faults on demand, with which a test or a benchmark makes the emulator behave badly.

Persistent faults are fields of :class:`Faults`. They apply until you change them or call ``RunningEmulator.reset``, for
all entities except those that have their own::

    emulator.faults.entity("orders").server_busy = 2

Other faults happen once and at once: each is a method of ``RunningEmulator``. ``POST /faults`` takes all of them as
JSON. The guide "Break the emulator on purpose" says what each does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Literal, cast, get_args, get_origin, get_type_hints

from sbnotebook.errors import ConfigurationError

SERVER_BUSY: Final = (
    "The request was terminated because the entity is being throttled. Please wait 2 seconds and try again."
)
"""In the words of Service Bus."""

_MAX_CONDITION: Final = 100
_MAX_PATH: Final = 400


@dataclass(slots=True)
class EntityFaults:
    """The persistent faults of an entity, by default none. Counts go down to 0 as the faults happen."""

    # The type of a fault that is a text names the choices, too.
    accept_delay_ms: int = 0
    settle_delay_ms: int = 0
    delivery_delay_ms: int = 0
    server_busy: int = 0
    reject_nth: int = 0
    reject_condition: str = "amqp:internal-error"
    drop_before_nth: int = 0
    drop_after_nth: int = 0
    # Azure does that now and then: azure-sdk-for-js issues 12450 and 13471, azure-sdk-for-python issue 39459.
    empty_peeks: int = 0
    # No source says that Azure answers with all of them, however large they are together.
    short_answers: int = 0
    # A preview feature: a namespace may lack it. Where none was removed, the answer is 200 with the count 0
    # (azure-sdk-for-js 39309), or 204 (azure-servicebus 7.13.0b1 reads both).
    batch_delete: Annotated[str, "taken", "refused", "zero"] = "taken"
    # "Batch deletion is done on a best-effort basis" (documentation); azure-sdk-for-net issue 43801.
    short_deletes: int = 0
    # No source says that Azure confirms them.
    unconfirmed: Annotated[str, "", "released", "ranges"] = ""
    # Azure was seen to do that after 12 to 20 minutes (azure-service-bus issues 684 and 685, azure-sdk-for-net 28025).
    # Over the management node the message can still be settled.
    link_settles_minutes: int = 0
    # Also those whose lock has ended. Of Azure 5,000 are reported (azure-amqp issue 152, azure-sdk-for-net 6450), which
    # stop the link; azure-sdk-for-python 16163 reports a detach.
    max_unsettled: int = 0
    over_max_unsettled: Annotated[str, "detach", "stop"] = "detach"
    # azure-service-bus-dotnet issue 386.
    mixed_partitions: Annotated[str, "taken", "refused"] = "taken"
    # No source says what Azure does.
    refused_tokens: Annotated[str, "kept", "settled"] = "kept"
    broken_off: int = 0
    # No source says whether Azure throttles settlements.
    broken_off_is: Annotated[str, "kept", "settled", "busy"] = "kept"
    # In a session, Azure was seen to place it behind messages that came meanwhile (azure-sdk-for-net issue 35846,
    # azure-sdk-for-java issues 24064 and 30027), and promises nothing.
    order_after_release: Annotated[str, "place", "front", "back"] = "place"
    # Of a delivery Azure says scheduled (azure-sdk-for-js 19357); of a peek no source says anything.
    activated_state: Annotated[str, "active", "scheduled"] = "active"

    def count_down(self, name: str, by: int = 1) -> int:
        """Return how many were left of a fault that is counted, 0 for one that does not happen."""
        left: int = getattr(self, name)
        if left:  # else another thread may set it meanwhile
            setattr(self, name, max(left - by, 0))
        return left


@dataclass(slots=True)
class Faults(EntityFaults):
    """The persistent faults of the emulator, by default none."""

    slow_disk_ms: int = 0
    network_delay_ms: int = 0
    # Each message that is sent, peeked or named in a request is one. Messages that come over a link, and their
    # settlements there, are not counted: no source says that Service Bus refuses them.
    operations_per_second: int = 0
    transaction_timeout_ms: int = 120_000
    transaction_refusal: Literal["rejected", "in_state", "detach"] = "rejected"
    settles_before_discharge: bool = True
    late_discharge: Literal["rejected", "accepted"] = "rejected"
    entities: dict[str, EntityFaults] = field(default_factory=dict[str, EntityFaults])

    def entity(self, path: str) -> EntityFaults:
        """Return the faults of one entity, which from now on has its own instead of those of all."""
        return self.entities.setdefault(path.casefold(), EntityFaults())

    def at(self, path: str) -> EntityFaults:
        return self.entities.get(path.casefold(), self) if self.entities else self

    def change(self, document: Mapping[str, Any]) -> None:
        """Set the faults that a JSON object names, those of an entity all together."""
        values = {name: _checked(Faults, name, value) for name, value in document.items()}
        self.entities.update(values.pop("entities", {}))
        for name, value in values.items():
            setattr(self, name, value)


def _checked(kind: type[EntityFaults], name: str, value: object) -> Any:
    known = [each.name for each in fields(kind)]
    if name not in known:
        raise ConfigurationError(f"There is no fault {name[:40]!r}: choose among {', '.join(known)}.")
    if name == "entities":
        return _entities(value)
    wanted = get_type_hints(kind, include_extras=True)[name]
    choices = (True, False) if wanted is bool else get_args(wanted)[get_origin(wanted) is Annotated :]
    if name == "reject_condition":
        _expect(isinstance(value, str) and value.isascii() and 0 < len(value) <= _MAX_CONDITION, name, "a condition")
    elif choices:
        _expect(value in choices, name, f"one of {', '.join(map(repr, choices))}")
    else:
        limit = 600_000 if name.endswith("_ms") else 1_000_000
        _expect(type(value) is int and 0 <= value <= limit, name, f"a number from 0 to {limit}")
    return value


def _entities(value: object) -> dict[str, EntityFaults]:
    _expect(isinstance(value, dict), "entities", "an object with faults by entity path")
    given = cast("dict[str, Any]", value)
    for path, document in given.items():
        _expect(0 < len(path) <= _MAX_PATH and isinstance(document, dict), path[:40], "an object of faults")
    return {
        path.casefold(): EntityFaults(**{name: _checked(EntityFaults, name, fault) for name, fault in document.items()})
        for path, document in given.items()
    }


def _expect(condition: bool, name: str, rule: str) -> None:
    if not condition:
        raise ConfigurationError(f"{name!r} must be {rule}.")
