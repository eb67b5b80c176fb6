"""Copy messages, and the entities that hold them, into an emulator of this process; compare and keep such copies.

The first line of a file is a JSON object with the entities. Each other line is a message as
:mod:`sbnotebook.analysis.exports` writes it to JSON lines, without loss. A file may come from a stranger: every size is
limited, and nothing is evaluated.
"""

from __future__ import annotations

import itertools
import json
import secrets
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NamedTuple

import anyio
import pyarrow as pa

from sbnotebook.amqp import Timestamp
from sbnotebook.analysis.exports import MISFITS, table_of_lines, write_lines
from sbnotebook.analysis.frames import messages_of_table, to_arrow
from sbnotebook.analysis.masks import Masks
from sbnotebook.analysis.tables import ShownRows, Table, printable
from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.client.portal import blocking
from sbnotebook.client.targets import Choice, chosen
from sbnotebook.emulator import RunningEmulator, Tier, running
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState
from sbnotebook.errors import AmqpDecodeError, ConfigurationError, DecisionError, EmulatorError
from sbnotebook.model import EntityAddress, MessageState, PeekedMessage, ReceivedMessage, SubQueue
from sbnotebook.settlement import Connection, EntityCounts, Journal, payload_of, replicate_entities, tier_of

MOST: Final = 10_000
"""Messages of a copy at most: all of them are in memory."""
_MOST_BYTES: Final = 512 * 1024 * 1024
"""Bytes of their bodies at most."""


@dataclass(frozen=True, slots=True)
class Copied:
    emulator: RunningEmulator
    folder: Path
    tier: Tier
    configuration: Mapping[str, Any]
    entity: EntityAddress | None
    messages: Sequence[ReceivedMessage]
    unreadable: Mapping[int, str]
    masked: Mapping[str, int]
    masked_whole: int
    counts: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """Of each entity of a snapshot: active, scheduled, dead-lettered, and in its transfer dead-letter queue."""

    @property
    def namespace(self) -> Mapping[str, Any]:
        (namespace,) = self.configuration["UserConfig"]["Namespaces"]
        return namespace

    @property
    def places(self) -> dict[EntityAddress, bool]:
        """Return the queues and subscriptions from which consumers can receive, each with whether it has sessions."""
        found = {EntityAddress(queue["Name"]): queue["Properties"] for queue in self.namespace["Queues"]}
        for topic in self.namespace["Topics"]:
            found |= {EntityAddress(topic["Name"], each["Name"]): each["Properties"] for each in topic["Subscriptions"]}
        return {address: each["RequiresSession"] for address, each in found.items() if "ForwardTo" not in each}

    @property
    def connection(self) -> Connection:
        return Connection(self.emulator.connection_string)

    @property
    def journal(self) -> Journal:
        return Journal(self.folder / "journal.sqlite")


async def messages_to_copy(
    entity: AsyncEntity, choice: Choice | None, where: str | None, most: int | None, *, show_progress: bool
) -> list[ReceivedMessage]:
    if choice is not None and where is not None:
        raise ConfigurationError("Choose the messages by where=…, or by messages, not by both.")
    if choice is None:
        count = MOST + 1 if most is None else min(most, MOST + 1)
        peeked = await entity.peek(count, where=where, state="active", show_progress=show_progress)
        found = await blocking(list[ReceivedMessage], peeked)
    else:
        meant = (await blocking(chosen, choice, entity.address))[:most]
        _check_count(len(meant), entity.address)
        found = await _whole(meant, entity)
    _check_count(len(found), entity.address)
    if all(message.unreadable is not None for message in found):
        raise DecisionError(f"None of the {len(found):,} messages can be read, so nothing was copied.")
    if (size := sum(len(message.body) for message in found)) > _MOST_BYTES:
        raise DecisionError(f"A copy has {_MOST_BYTES:,} bytes of bodies at most, and these have {size:,}: take fewer.")
    return found


@asynccontextmanager
async def copied(
    source: Connection,
    entity: EntityAddress | None,
    messages: Sequence[ReceivedMessage],
    *,
    beside: Iterable[str] = (),
    masks: Masks | None = None,
    counts: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> AsyncGenerator[Copied]:
    """Copy messages into a fresh emulator of this process, which ends with the block.

    The emulator gets the tier of the namespace, and the options, subscriptions and rules of the entities, and of those
    to which they forward. Copies have the numbers, times, states and properties of the messages, and do not expire.
    """
    masks = masks or Masks()
    messages = await blocking(_masked, messages, masks)
    tier = Tier(await tier_of(source))
    async with empty_emulator(tier) as (emulator, folder):
        names = dict.fromkeys((*([entity.name] if entity else ()), *beside))
        await replicate_entities(source, Connection(emulator.connection_string), names)
        unreadable = await blocking(put, emulator, messages)
        readable = [message for message in messages if message.sequence_number not in unreadable]
        told = readable, unreadable, dict(masks.found), masks.whole, counts
        yield Copied(emulator, folder, tier, emulator.configuration(), entity, *told)


@asynccontextmanager
async def empty_emulator(tier: Tier) -> AsyncGenerator[tuple[RunningEmulator, Path]]:
    """Run an empty emulator with a folder beside it; both are gone after the block.

    Its key is random, so that other users of this machine cannot read the messages.
    """
    stack = ExitStack()
    try:
        emulator = await blocking(stack.enter_context, running(tier=tier, key=secrets.token_urlsafe(32)))
        yield emulator, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sbnotebook-copy-")))
    finally:
        with anyio.CancelScope(shield=True):
            await blocking(stack.close)


def put(emulator: RunningEmulator, messages: Iterable[ReceivedMessage]) -> dict[int, str]:
    unreadable: dict[int, str] = {}
    copies: defaultdict[EntityAddress, list[BrokeredMessage]] = defaultdict(list)
    for message in messages:
        try:
            copies[message.entity].append(_copy(message))
        except AmqpDecodeError as error:
            unreadable[message.sequence_number] = str(error)
    for entity, found in copies.items():
        emulator.put(str(entity), sorted(found, key=lambda each: each.sequence_number))
    return unreadable


def _masked(messages: Sequence[ReceivedMessage], masks: Masks) -> list[ReceivedMessage]:
    masked = [masks.masked(message) for message in messages]
    if masks.missed:
        raise DecisionError(
            f"None of the {len(messages):,} messages has a value at {masks.missed[0][:60]}, so nothing was "
            "copied: correct the path, or leave it out."
        )
    return masked


def _check_count(count: int, address: EntityAddress) -> None:
    if not count:
        raise DecisionError(f"There is nothing to copy: no such message is in {address}.")
    if count > MOST:
        raise DecisionError(f"A copy has {MOST:,} messages at most, and these are more: choose fewer, or the first.")


async def _whole(meant: Sequence[ReceivedMessage | int], entity: AsyncEntity) -> list[ReceivedMessage]:
    """Return the messages in the order of their numbers; peek at those of which only the number is known."""
    address = entity.address
    found = {message.sequence_number: message for message in meant if isinstance(message, ReceivedMessage)}
    if strange := [str(message.entity) for message in found.values() if message.entity != address]:
        raise DecisionError(
            f"Some of the chosen messages are in {strange[0]}, and not in {address}: copy them from there."
        )
    numbers = {each if isinstance(each, int) else each.sequence_number for each in meant}
    if wanted := numbers - found.keys():
        found |= await entity.place.peeker.messages_of(wanted)
    if missing := numbers - found.keys():
        raise DecisionError(
            f"{address} does not hold {len(missing):,} of the chosen messages, so nothing was copied: "
            f"#{min(missing)} is the first."
        )
    return [found[number] for number in sorted(numbers)]


def _copy(message: ReceivedMessage) -> BrokeredMessage:
    times = [time and Timestamp.from_datetime(time) for time in (message.scheduled_enqueue_time, message.enqueued_time)]
    is_unscheduled = message.state is MessageState.SCHEDULED and times[0] is None
    payload = payload_of(message)
    return BrokeredMessage(
        sequence_number=message.sequence_number,
        enqueued_sequence_number=message.enqueued_sequence_number or message.sequence_number,
        enqueued_time=times[1] or 0,
        payload=payload,
        size=len(payload),
        state=BrokeredState.ACTIVE if is_unscheduled else BrokeredState[message.state.name],
        scheduled_time=times[0],
        delivery_count=message.delivery_count,
        session_id=None if message.entity.sub_queue else message.session_id,
        dead_letter_source=message.dead_letter_source,
    )


# ---------------------------------------------------------------- snapshots of whole namespaces

_COUNTED: Final = (
    "active messages",
    "scheduled messages",
    "dead letters",
    "messages in the transfer dead-letter queue",
)
_EXISTS: Final = "entity"
_NAMES, _OPTIONS = {"Queues": "queue", "Topics": "topic", "Subscriptions": "subscription"}, "Properties"


async def snapshot_of(
    connection: Connection,
    entities: Sequence[EntityCounts],
    peek: Callable[[EntityAddress], Awaitable[Iterable[ReceivedMessage]]] | None,
    masks: Masks,
) -> AbstractAsyncContextManager[Copied]:
    messages: list[ReceivedMessage] = []
    counts = {
        str(each.address): (each.active, each.scheduled, each.dead_letter, each.transfer_dead_letter)
        for each in entities
    }
    for each in entities if peek is not None else ():
        filled = {None: each.active + each.scheduled, SubQueue.DEAD_LETTER: each.dead_letter}
        for sub_queue, count in filled.items():
            if count and each.kind != "topic" and peek is not None:
                messages += await peek(EntityAddress(each.address.name, each.address.subscription, sub_queue))
        if len(messages) > MOST:
            raise DecisionError(f"A snapshot has {MOST:,} messages at most, and these are more: take a smaller sample.")
    names = [each.address.name for each in entities if each.kind != "subscription"]
    return copied(connection, None, messages, beside=names, masks=masks, counts=counts)


class NamespaceDifference(NamedTuple):
    """One difference between two namespaces.

    Args:
        entity: where it is.
        what: an option, a rule or a count; ``entity`` where only one namespace has the entity.
        one: its value in the first namespace; None where it has none.
        other: its value in the second.
    """

    entity: str
    what: str
    one: str | None
    other: str | None


class Comparison(ShownRows[NamespaceDifference]):
    """The differences of two namespaces or snapshots. Shown as a table in a notebook and as text elsewhere."""

    _one_line = False
    _fields = NamespaceDifference._fields

    def __init__(self, differences: Iterable[NamespaceDifference], names: tuple[str, str]) -> None:
        super().__init__(differences)
        self._names = names

    def _table(self, most: int) -> Table:
        count, (one, other) = len(self), self._names
        said = f"{count:,} difference{'s' if count != 1 else ''}" if count else "No difference"
        more = f", the first {most:,} shown" if count > most else ""
        rows = [list(each) for each in self[:most]]
        return ("entity", "what", one, other), rows, f"{said} between {one} and {other}{more}."


def compared(one: Copied, other: Copied, names: tuple[str, str], *, counts: bool) -> Comparison:
    first, second = (dict(_items(each.namespace)) | (_counted(each) if counts else {}) for each in (one, other))
    alone = {place for place, what in first.keys() ^ second.keys() if what == _EXISTS}
    keys = sorted(first.keys() | second.keys(), key=lambda key: (key[0].casefold(), key[1] != _EXISTS, key[1]))
    return Comparison(
        (
            NamespaceDifference(place, what, first.get((place, what)), second.get((place, what)))
            for place, what in keys
            if first.get((place, what)) != second.get((place, what)) and (what == _EXISTS or place not in alone)
        ),
        names,
    )


def _counted(copy: Copied) -> dict[tuple[str, str], str | None]:
    return {
        (path, what): f"{count:,}"
        for path, each in copy.counts.items()
        for what, count in zip(_COUNTED, each, strict=True)
    }


def _items(holder: Mapping[str, Any], names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, str], str | None]]:
    """Yield each option and rule, by its entity and name."""
    for list_name, kind in _NAMES.items():
        for item in holder.get(list_name, ()):
            own = *names, str(item["Name"])
            place = str(EntityAddress.parse("/subscriptions/".join(own)))
            yield (place, _EXISTS), kind
            for option, value in item[_OPTIONS].items():
                yield (place, option), _text(value)
            for rule in item.get("Rules", ()):
                yield (place, f"rule {rule['Name']}"), _text(rule[_OPTIONS])
            yield from _items(item, own)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


# ---------------------------------------------------------------- a copy as a file

_ENDING: Final = ".sbcopy"
_FILE_VERSION: Final = 1
_MARK: Final = "sbcopy"
_MOST_HEAD: Final = 8 * 1024 * 1024
_MOST_LINE: Final = 256 * 1024 * 1024
"""Bytes: the largest message of Service Bus has 100 MB, and a third more in base64."""
_MOST_OF_FILE: Final = 1024 * 1024 * 1024
_MOST_VALUES: Final = 1_000_000
"""Signs between values in a line: each value takes far more memory than its sign."""
_MOST_OBJECTS: Final = 50_000
"""Objects in the first line: entities and rules, of which each has two or more."""
_MOST_PATHS: Final = 1_000
_SHOWN_OF_FILE: Final = 200


def write_copy_file(copy: Copied, path: Path | str, *, overwrite: bool = False) -> Path:
    """Write a copy to a file that only its owner can read; the file is complete or does not exist."""
    place = Path(path).expanduser()
    if place.suffix.lower() != _ENDING:
        raise ConfigurationError(
            f"A copy is written to a file that ends in {_ENDING}, not to {place.name[:_SHOWN_OF_FILE]!r}."
        )
    head = {
        _MARK: _FILE_VERSION,
        "tier": copy.tier.value,
        "entity": None if copy.entity is None else str(copy.entity),
        "counts": dict(copy.counts),
        "masked": copy.masked,
        "masked_whole": copy.masked_whole,
        "entities": copy.configuration,
    }
    table: Any = to_arrow(copy.messages)
    # The text is made of the body again, which would be in the file twice.
    bare = table.set_column(table.column_names.index("body_text"), "body_text", pa.nulls(len(table), pa.string()))
    return write_lines(bare, place, head, overwrite=overwrite)


@asynccontextmanager
async def read_copy_file(path: Path | str) -> AsyncGenerator[Copied]:
    """Read a copy into a fresh emulator of this process, which ends with the block."""
    place = Path(path).expanduser()  # noqa: ASYNC240 (no input or output)
    entities, known, messages = await blocking(_read_file, place)
    async with empty_emulator(known["tier"]) as (emulator, folder):
        try:
            await blocking(emulator.configure, entities)
            unreadable = await blocking(put, emulator, messages)
        except (EmulatorError, ConfigurationError, TypeError, OverflowError) as error:
            raise _no_copy(place, str(error)) from None
        readable = [message for message in messages if message.sequence_number not in unreadable]
        made: Any = {"configuration": emulator.configuration(), "messages": readable, "unreadable": unreadable}
        yield Copied(emulator, folder, **made, **known)


def _lines(file: BinaryIO, left: int = _MOST_OF_FILE) -> Iterator[bytes]:
    for number in itertools.count():
        line = file.readline(min(_MOST_LINE, left) + 1)
        if not line:
            return
        left -= len(line)
        if number >= MOST:
            raise ConfigurationError(f"it has more than {MOST:,} messages")
        if left < 0 or len(line) > _MOST_LINE:
            raise ConfigurationError("it is larger than a copy can be")
        if sum(map(line.count, (b",", b"[", b"{"))) > _MOST_VALUES:
            raise ConfigurationError("a line has more values than a message can have")
        yield line


def _read_file(place: Path) -> tuple[Mapping[str, Any], dict[str, Any], list[PeekedMessage]]:
    try:
        if place.exists() and not place.is_file():
            raise ConfigurationError(f"{place} is not a file.")
        with place.open("rb") as file:
            entities, known = _head_of(file.readline(_MOST_HEAD + 1), place)
            try:
                messages = messages_of_table(table_of_lines(_lines(file), first=2))
                _check_messages(messages, known["entity"])
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
    if version != _FILE_VERSION:
        raise ConfigurationError(f"{place} is a copy of another version of sbnotebook: use a later one.")
    try:
        return head["entities"], _checked(head)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _no_copy(place, f"its first line is wrong ({type(error).__name__})") from None


def _checked(head: dict[str, Any]) -> dict[str, Any]:
    masked, whole = head["masked"], head["masked_whole"]
    if type(whole) is not int or len(masked) > _MOST_PATHS or any(type(each) is not int for each in masked.values()):
        raise TypeError("masked")
    counts = {str(EntityAddress.parse(path)): list(each) for path, each in head["counts"].items()}
    if any(len(each) != len(_COUNTED) or any(type(count) is not int for count in each) for each in counts.values()):
        raise TypeError("counts")
    return {
        "tier": Tier(head["tier"]),
        "entity": None if head["entity"] is None else EntityAddress.parse(head["entity"]),
        "masked": dict(masked),
        "masked_whole": whole,
        "counts": counts,
    }


def _check_messages(messages: Sequence[PeekedMessage], entity: EntityAddress | None) -> None:
    places = [(message.entity, message.sequence_number) for message in messages]
    if len({*places}) < len(places) or min((number for _, number in places), default=1) < 1:
        raise ConfigurationError("two messages have the same sequence number, or one has none")
    if entity is not None and any(message.entity != entity for message in messages):
        raise ConfigurationError(f"a message is not of {entity}")
    if any(message.delivery_count < 0 for message in messages):
        raise ConfigurationError("a delivery count is below 0")


def _no_copy(place: Path, why: str) -> ConfigurationError:
    return ConfigurationError(f"{place} is not a whole copy: {printable(why[:_SHOWN_OF_FILE]).rstrip('.')}.")
