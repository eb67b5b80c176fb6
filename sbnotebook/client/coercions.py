"""Read durations, addresses, times, states and expressions as users write them, and which messages they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from numbers import Integral
from operator import index
from typing import Any, Final, TypeAlias, TypeVar, overload

import pyarrow as pa

from sbnotebook.analysis import query
from sbnotebook.analysis.frames import collect_spark_frame
from sbnotebook.analysis.groups import Group
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import DeadLetter, EntityAddress, MessageState, PeekedMessage, ReceivedMessage
from sbnotebook.settlement import Ramp

RampSizes: TypeAlias = str | int | Iterable[int]
"""The sizes of the batches of a ramp: ``"1,5,20,100"``, a number, or numbers."""

_UNITS: Final = {
    "milliseconds": ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    "seconds": ("s", "sec", "secs", "second", "seconds"),
    "minutes": ("m", "min", "mins", "minute", "minutes"),
    "hours": ("h", "hr", "hrs", "hour", "hours"),
    "days": ("d", "day", "days"),
    "weeks": ("w", "wk", "wks", "week", "weeks"),
}
_BY_UNIT: Final = {name: unit for unit, names in _UNITS.items() for name in names}
_PART: Final = re.compile(r"(?<!\d)(\d++(?:\.\d++)?+)\s*+([a-z]++)")
_NUMBER: Final = re.compile(r"\d++(?:\.\d++)?+")
_LONGEST: Final = 60
_GRACE: Final = timedelta(minutes=1)
"""By which clocks may differ, and for which a user may hesitate."""


@overload
def duration(text: str | float | timedelta) -> timedelta: ...
@overload
def duration(text: None) -> None: ...
def duration(text: str | float | timedelta | None) -> timedelta | None:
    """Read a duration from a text such as ``90s``, ``5m``, ``5 minutes`` or ``1h30m``; None stays None.

    A number, also as a text, is seconds.
    """
    if text is None or isinstance(text, timedelta):
        return text
    try:
        return timedelta(seconds=text) if isinstance(text, (int, float)) else _parse(text.lower())
    except (ValueError, OverflowError, AttributeError, TypeError):
        raise ConfigurationError(f"{str(text)[:40]!r} is not a duration: write 90s, 5m, 1h30m or 2d.") from None


def _parse(text: str) -> timedelta:
    if len(text) > _LONGEST:
        raise ValueError(text)
    if _NUMBER.fullmatch(text.strip()):
        return timedelta(seconds=float(text))
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip(" ,") or not all(unit in _BY_UNIT for _, unit in parts):
        raise ValueError(text)
    return sum((timedelta(**{_BY_UNIT[unit]: float(number)}) for number, unit in parts), timedelta())


def start_time(since: str | datetime | timedelta | None) -> datetime | timedelta | None:
    """Read a time such as ``2026-01-31T08:00``, or a duration that counts back from now, such as ``2d``.

    A text without a time zone is in this machine's.
    """
    if not isinstance(since, str):
        return since
    try:
        return moment(since)
    except ConfigurationError:
        pass
    try:
        return duration(since)
    except ConfigurationError:
        raise ConfigurationError(
            f"{since[:40]!r} is neither a time nor a duration: write 2026-01-31, 2026-01-31T08:00 or 2d."
        ) from None


def moment(time: str | datetime | None) -> datetime | None:
    """Read a time such as ``2026-01-31`` or ``2026-01-31T08:00``, in this machine's time zone unless it has one.

    A datetime and None stay as they are.
    """
    if not isinstance(time, str):
        return time
    try:
        if len(time) <= _LONGEST and "-" in time:  # 20260131 may as well be a number
            return datetime.fromisoformat(time.strip()).astimezone()
    except (ValueError, OverflowError):
        pass
    raise ConfigurationError(f"{time[:40]!r} is not a time: write 2026-01-31 or 2026-01-31T08:00.")


def time_to_come(at: str | datetime | None, now: datetime | None = None) -> datetime | None:
    """Read the time at which messages are to become active; None stays None."""
    when = moment(at)
    if when is not None and when.tzinfo is not None and when < (now or datetime.now(UTC)) - _GRACE:
        raise ConfigurationError(
            f"{when:%Y-%m-%d %H:%M %Z} is in the past, and Service Bus would make the messages active at once: give a "
            "later time, or send them with %sb_send or send(…)."
        )
    return when


def ramp_of(batches: RampSizes, watch: str | float | timedelta, stop_at: float) -> Ramp:
    """Read the batches of a ramp, for how long each is watched, and the share that stops it."""
    given: Any = batches.split(",") if isinstance(batches, str) else [batches] if isinstance(batches, int) else batches
    try:
        sizes = tuple(int(each) for each in given)
    except (TypeError, ValueError):
        raise ConfigurationError(f'{str(batches)[:40]!r} is not a ramp: write sizes such as "1,5,20,100".') from None
    return Ramp(sizes, duration(watch), stop_at)


def dead_letter(reason: str | None, description: str | None, error_description: str | None) -> DeadLetter:
    """Return the decision to dead-letter; ``error_description`` is the SDK's name of the description."""
    if description is not None and error_description is not None:
        raise ConfigurationError("Give description or error_description, which is the SDK's name of it, not both.")
    return DeadLetter(reason, error_description if description is None else description)


def address(entity: str | EntityAddress | None) -> EntityAddress | None:
    """Read an entity's address, such as ``orders/$dlq``; None stays None."""
    return None if entity is None else EntityAddress.parse(entity)


def message_state(state: str | None) -> MessageState | None:
    """Read ``active``, ``deferred`` or ``scheduled``; None stays None."""
    if state is None:
        return None
    try:
        return MessageState(state)
    except ValueError:
        raise ConfigurationError(f"{state[:40]!r} is not a state: use {', '.join(MessageState)}.") from None


def whole_number(value: int, name: str, *, least: int = 0) -> int:
    """Check a number that a user gives."""
    if not isinstance(value, Integral) or value < least:
        hint = "; an expression is given as where=…" if isinstance(value, str) and not value.isdigit() else ""
        raise ConfigurationError(f"{name} is a whole number from {least}, not {str(value)[:40]!r}{hint}.")
    return int(value)


def message_filter(where: str | None) -> Callable[[Sequence[PeekedMessage]], Sequence[PeekedMessage]] | None:
    """Make a filter of a SQL expression over the message columns; None stays None."""
    query.where([], where)  # checks the expression before any message is peeked
    return partial(query.where, expression=where) if where is not None else None


# ---------------------------------------------------------------- messages

Choice: TypeAlias = Any
"""Which messages are meant: see :func:`chosen`."""
M = TypeVar("M", bound=ReceivedMessage)

_COLUMN: Final = "sequence_number"
_EXACT_FLOATS: Final = 2**53
_MOST_DIGITS: Final = 19
"""Digits of the largest sequence number."""
_ACCEPTED: Final = "give messages, sequence numbers, a group, or a frame or row with the column sequence_number"


def chosen(choice: Choice, address: EntityAddress) -> list[ReceivedMessage | int]:
    """Return the messages that a user means, or where only those are known, their sequence numbers."""
    return list(_each(choice, address))


def check_choice(choice: Choice | None, where: str | None) -> None:
    """Check that a user chooses messages either by themselves or by an expression."""
    if (choice is None) is (where is None):
        raise ConfigurationError(f"Choose the messages by where=…, or {_ACCEPTED}.")


def chosen_of(held: Iterable[M], choice: Choice, address: EntityAddress, kind: type[M]) -> list[M]:
    """Return those of some messages that a user means; all of them for None."""
    if choice is None:
        return list(held)
    by_number = {message.sequence_number: message for message in held}
    found: list[M] = []
    missing: list[int] = []
    for each in chosen(choice, address):
        number = each if isinstance(each, int) else each.sequence_number
        one = each if isinstance(each, kind) else by_number.get(number)
        if one is None:
            missing.append(number)
        else:
            found.append(one)
    if missing:
        raise DecisionError(
            f"The batch does not hold {len(missing):,} of the chosen messages, so nothing was done: "
            f"#{missing[0]} is the first."
        )
    return found


def _each(choice: Choice, address: EntityAddress) -> Iterator[ReceivedMessage | int]:
    choice = _as_table(choice)
    if isinstance(choice, ReceivedMessage):
        yield choice
    elif isinstance(choice, (pa.Table, pa.RecordBatch)):
        yield from _of_columns(choice, address)
    elif isinstance(choice, Group):
        yield from _each(choice.messages, address)
    elif _is_row(choice):
        yield from _of_row(choice, address)
    elif isinstance(choice, Iterable) and not isinstance(choice, (str, bytes, Mapping)):
        for item in choice:  # pyright: ignore[reportUnknownVariableType]
            yield from _each(item, address)
    else:
        yield _number(choice)  # pyright: ignore[reportUnknownArgumentType]


def _as_table(choice: Choice) -> Choice:
    """Return a frame of pandas or Spark as an Arrow table of the columns read, and other data unchanged."""
    module = type(choice).__module__.partition(".")[0]
    if module == "pyspark" and hasattr(choice, "toArrow"):
        return collect_spark_frame(choice.select(*(name for name in choice.columns if name in ("entity", _COLUMN))))
    if module == "pandas" and hasattr(choice, "columns") and _COLUMN in choice.columns:
        names = [name for name in ("entity", _COLUMN) if name in choice.columns]
        return pa.table({name: choice[name].tolist() for name in names})
    if module == "pandas" and hasattr(choice, "columns"):
        raise ConfigurationError(f"The frame has no column sequence_number: {_ACCEPTED}.")
    return choice


def _of_columns(table: pa.Table | pa.RecordBatch, address: EntityAddress) -> Iterator[int]:
    columns: Any = table
    if _COLUMN not in columns.schema.names:
        raise ConfigurationError(f"The frame has no column sequence_number: {_ACCEPTED}.")
    if "entity" in columns.schema.names:
        for entity in columns.column("entity").unique().to_pylist():
            _check(entity, address)
    yield from map(_number, columns.column(_COLUMN).to_pylist())


def _is_row(choice: Choice) -> bool:
    return _COLUMN in choice if isinstance(choice, Mapping) else hasattr(choice, _COLUMN)


def _of_row(row: Any, address: EntityAddress) -> Iterator[int]:
    fields: Any = row
    if not isinstance(row, Mapping):
        fields = {"entity": getattr(row, "entity", None), _COLUMN: row.sequence_number}
    _check(fields.get("entity"), address)
    yield _number(fields[_COLUMN])


def _check(entity: object, address: EntityAddress) -> None:
    if isinstance(entity, (str, EntityAddress)) and entity and EntityAddress.parse(entity) != address:
        raise DecisionError(
            f"Some of the chosen messages are in {str(entity)[:260]}, and not in {address}: choose them in the entity "
            "that they are in."
        )


def _number(value: object) -> int:
    """Return a sequence number, also one that a frame turned into a float or a text."""
    try:
        if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_FLOATS:
            return int(value)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS:
            return int(value)
        if not isinstance(value, bool):
            return index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        pass
    raise DecisionError(f"{str(value)[:40]!r} is not a sequence number: {_ACCEPTED}.")
