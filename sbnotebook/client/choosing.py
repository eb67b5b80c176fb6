"""Read which messages users mean: messages, sequence numbers, rows, frames, groups of causes, or outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import index
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from sbnotebook.analysis.frames import collect_spark_frame
from sbnotebook.analysis.groups import Group
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import EntityAddress, ReceivedMessage

Choice: TypeAlias = Any
"""Which messages are meant: see :func:`chosen`."""
M = TypeVar("M", bound=ReceivedMessage)

_NUMBER: Final = "sequence_number"
_EXACT_FLOATS: Final = 2**53
_LONGEST: Final = 19
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
            f"{len(missing):,} of the chosen messages are not held here, or not any more, so nothing was done: "
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
        return collect_spark_frame(choice.select(*(name for name in choice.columns if name in ("entity", _NUMBER))))
    if module == "pandas" and hasattr(choice, "columns") and _NUMBER in choice.columns:
        names = [name for name in ("entity", _NUMBER) if name in choice.columns]
        return pa.table({name: choice[name].tolist() for name in names})
    if module == "pandas" and hasattr(choice, "columns"):
        raise ConfigurationError(f"The frame has no column sequence_number: {_ACCEPTED}.")
    return choice


def _of_columns(table: pa.Table | pa.RecordBatch, address: EntityAddress) -> Iterator[int]:
    columns: Any = table
    if _NUMBER not in columns.schema.names:
        raise ConfigurationError(f"The frame has no column sequence_number: {_ACCEPTED}.")
    if "entity" in columns.schema.names:
        for entity in columns.column("entity").unique().to_pylist():
            _check(entity, address)
    yield from map(_number, columns.column(_NUMBER).to_pylist())


def _is_row(choice: Choice) -> bool:
    return _NUMBER in choice if isinstance(choice, Mapping) else hasattr(choice, _NUMBER)


def _of_row(row: Any, address: EntityAddress) -> Iterator[int]:
    fields: Any = row
    if not isinstance(row, Mapping):
        fields = {"entity": getattr(row, "entity", None), _NUMBER: row.sequence_number}
    _check(fields.get("entity"), address)
    yield _number(fields[_NUMBER])


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
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _LONGEST:
            return int(value)
        if not isinstance(value, bool):
            return index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        pass
    raise DecisionError(f"{str(value)[:40]!r} is not a sequence number: {_ACCEPTED}.")
