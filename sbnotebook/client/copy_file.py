"""A copy of messages and of the entities that hold them, as one file: write it, and read it into an emulator.

The first line is a JSON object with the entities. Each other line is a message as :mod:`sbnotebook.analysis.exports`
writes it to JSON lines, without loss. A file may come from a stranger: every size is limited, and nothing is evaluated.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from sbnotebook.analysis.exports import MISFITS, table_of_lines, write_lines
from sbnotebook.analysis.frames import messages_of_table, to_arrow
from sbnotebook.analysis.tables import printable
from sbnotebook.client.copying import MOST, Copied, empty_emulator, put
from sbnotebook.client.portal import blocking
from sbnotebook.emulator import Tier
from sbnotebook.errors import ConfigurationError, EmulatorError
from sbnotebook.model import EntityAddress, PeekedMessage

_ENDING: Final = ".sbcopy"
_VERSION: Final = 1
_MARK: Final = "sbcopy"
_MOST_HEAD: Final = 8 * 1024 * 1024
_MOST_LINE: Final = 256 * 1024 * 1024
"""Bytes: the largest message of Service Bus has 100 MB, and a third more in base64."""
_MOST_BYTES: Final = 1024 * 1024 * 1024
_SIGNS: Final = (b",", b"[", b"{")
_MOST_VALUES: Final = 1_000_000
"""Signs between values in a line: each value takes far more memory than its sign."""
_MOST_OBJECTS: Final = 50_000
"""Objects in the first line: entities and rules, of which each has two or more."""
_MOST_PATHS: Final = 1_000
_COUNTS: Final = 4
"""Numbers for each entity of a snapshot."""
_SHOWN: Final = 200


def write_copy_file(copy: Copied, path: Path | str, *, overwrite: bool = False) -> Path:
    """Write a copy to a file that only its owner can read; the file is complete or does not exist."""
    place = Path(path).expanduser()
    if place.suffix.lower() != _ENDING:
        raise ConfigurationError(f"A copy is written to a file that ends in {_ENDING}, not to {place.name[:_SHOWN]!r}.")
    head = {
        _MARK: _VERSION,
        "tier": copy.tier.value,
        "entity": None if copy.entity is None else str(copy.entity),
        "counts": dict(copy.counts),
        "masked": copy.masked,
        "masked_whole": copy.masked_whole,
        "entities": copy.configuration,
    }
    table: Any = to_arrow(copy.messages)
    # The text is made of the body again, which would be in the file twice.
    texts = pa.nulls(len(table), pa.string())
    bare = table.set_column(table.column_names.index("body_text"), "body_text", texts)
    return write_lines(bare, place, head, overwrite=overwrite)


@asynccontextmanager
async def read_copy_file(path: Path | str) -> AsyncGenerator[Copied]:
    """Read a copy into a fresh emulator of this process, which ends with the block."""
    place = Path(path).expanduser()  # noqa: ASYNC240 (no input or output)
    entities, known, messages = await blocking(_read, place)
    async with empty_emulator(known["tier"]) as (emulator, folder):
        try:
            await blocking(emulator.configure, entities)
            unreadable = await blocking(put, emulator, messages)
        except (EmulatorError, ConfigurationError, TypeError, OverflowError) as error:
            raise _no_copy(place, str(error)) from None
        readable = [message for message in messages if message.sequence_number not in unreadable]
        made: Any = {"configuration": emulator.configuration(), "messages": readable, "unreadable": unreadable}
        yield Copied(emulator, folder, **made, **known)


def _lines(file: BinaryIO, left: int = _MOST_BYTES) -> Iterator[bytes]:
    """Yield the lines of a file behind the first, with limits."""
    for number in count():
        line = file.readline(min(_MOST_LINE, left) + 1)
        if not line:
            return
        left -= len(line)
        if number >= MOST:
            raise ConfigurationError(f"it has more than {MOST:,} messages")
        if left < 0 or len(line) > _MOST_LINE:
            raise ConfigurationError("it is larger than a copy can be")
        if sum(map(line.count, _SIGNS)) > _MOST_VALUES:
            raise ConfigurationError("a line has more values than a message can have")
        yield line


def _read(place: Path) -> tuple[Mapping[str, Any], dict[str, Any], list[PeekedMessage]]:
    """Return the entities, the other fields of a copy, and its messages."""
    try:
        if place.exists() and not place.is_file():
            raise ConfigurationError(f"{place} is not a file.")
        with place.open("rb") as file:
            entities, known = _head_of(file.readline(_MOST_HEAD + 1), place)
            try:
                messages = messages_of_table(table_of_lines(_lines(file), first=2))
                _check(messages, known["entity"])
            except (ConfigurationError, *MISFITS) as error:
                raise _no_copy(place, " ".join(str(error).split())) from None
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be read: {error.strerror}.") from None
    return entities, known, messages


def _head_of(line: bytes, place: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    if len(line) > _MOST_HEAD or line.count(b"{") > _MOST_OBJECTS:
        raise _no_copy(place, "its first line is too long")
    try:
        head: Any = json.loads(line)
        version = head[_MARK]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _no_copy(place, "copy.save(…), %sb_sample --to and sbnotebook snapshot write copies") from None
    if version != _VERSION:
        raise ConfigurationError(f"{place} is a copy of another version of sbnotebook: use a later one.")
    try:
        return head["entities"], _checked(head)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _no_copy(place, f"its first line is wrong ({type(error).__name__})") from None


def _checked(head: dict[str, Any]) -> dict[str, Any]:
    masked, whole = head["masked"], head["masked_whole"]
    if type(whole) is not int or len(masked) > _MOST_PATHS or any(type(each) is not int for each in masked.values()):
        raise TypeError("masked")
    return {
        "tier": Tier(head["tier"]),
        "entity": None if head["entity"] is None else EntityAddress.parse(head["entity"]),
        "masked": dict(masked),
        "masked_whole": whole,
        "counts": _counts(head["counts"]),
    }


def _counts(found: dict[str, Any]) -> dict[str, list[int]]:
    counts = {str(EntityAddress.parse(path)): list(each) for path, each in found.items()}
    if any(len(each) != _COUNTS or any(type(count) is not int for count in each) for each in counts.values()):
        raise TypeError("counts")
    return counts


def _check(messages: Sequence[PeekedMessage], entity: EntityAddress | None) -> None:
    places = [(message.entity, message.sequence_number) for message in messages]
    if len({*places}) < len(places) or min((number for _, number in places), default=1) < 1:
        raise ConfigurationError("two messages have the same sequence number, or one has none")
    if entity is not None and any(message.entity != entity for message in messages):
        raise ConfigurationError(f"a message is not of {entity}")
    if any(message.delivery_count < 0 for message in messages):
        raise ConfigurationError("a delivery count is below 0")


def _no_copy(place: Path, why: str) -> ConfigurationError:
    return ConfigurationError(f"{place} is not a whole copy: {printable(why[:_SHOWN]).rstrip('.')}.")
