"""Find messages in many entities at once, with their places, their lineage, and a timeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis import tables
from sbnotebook.analysis.decoders import Decoding, columns_of
from sbnotebook.analysis.decoding import Decode, decoder_for
from sbnotebook.analysis.frames import tables_of_pages
from sbnotebook.analysis.groups import label, timeline_figure
from sbnotebook.analysis.query import few_at_once, first_matching
from sbnotebook.analysis.tables import Table, without_empty
from sbnotebook.client.dead_letters import choose_entities, dead_letter_counts
from sbnotebook.client.messages import Messages, Present
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import EntityAddress, MessageState, PeekedMessage
from sbnotebook.model.budget import UNPACKED_BYTES_OF_TABLE, Allowance
from sbnotebook.model.clones import lineage_of
from sbnotebook.model.durations import duration_text
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.settlement import AsyncNamespace, EntityCounts, PeekCursor, Progress, explained, in_parallel

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_FOUND: Final = 1_000
"""Messages that are found at most, by default."""
_HEADERS: Final = ("enqueued_time", "after", "entity", "number", "lineage", "reason", "subject", "state", "message_id")
_FEW_PROBLEMS: Final = 3
_ORDER: Final = [(name, "ascending") for name in ("enqueued_time", "entity", "sequence_number")]


@dataclass(frozen=True, slots=True)
class Search:
    message_id: str | None = None
    correlation_id: str | None = None
    where: str | None = None
    most: int = MOST_FOUND
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.message_id is None and self.correlation_id is None and self.where is None:
            raise ConfigurationError(
                "Choose what to find: a message_id, a correlation_id, or an expression for where, such as "
                "\"body_text like '%late%'\"."
            )
        for name in ("message_id", "correlation_id"):
            value: Any = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigurationError(f"{name} is a text that is not empty, not {str(value)[:40]!r}.")

    def __str__(self) -> str:
        given = {"message_id": self.message_id, "correlation_id": self.correlation_id}
        said = [f"{name} {tables.printable(value[:60])!r}" for name, value in given.items() if value is not None]
        return " and ".join([*said, *([f"where {self.where[:60]}"] if self.where else [])])

    def kept(self, table: pa.Table) -> pa.Table:
        """Return the rows that have the ids; the expression is not looked at."""
        untyped: Any = table
        kernels: Any = pc
        if self.correlation_id is not None:
            untyped = untyped.filter(kernels.equal(untyped["correlation_id"], self.correlation_id))
        if self.message_id is None or not len(untyped):
            return untyped
        original, _ = lineage_of(self.message_id)
        named = kernels.map_lookup(untyped["application_properties"], ORIGINAL_MESSAGE_ID, "first").to_pylist()
        # Of the first original of a message, its property tells the id, or else its own id.
        kept = [
            own == self.message_id or original in (own, name or (None if own is None else lineage_of(own)[0]))
            for own, name in zip(untyped["message_id"].to_pylist(), named, strict=True)
        ]
        return untyped.filter(pa.array(kept, pa.bool_()))


class FoundMessages(Messages):
    """Messages that were found in several entities, in the order of their enqueued times.

    Shown as a timeline: when each was enqueued and how long after the one before, where it is, and of which message it
    is a clone. All that :class:`Messages` offers works, too.

    Args:
        table: the messages.
        search: the values that they have.
        places: the number of queues, subscriptions and sub-queues that were searched.
        looked: the number of messages that were looked at.
        has_more: whether there are more than the search wanted.
        problems: why a place could not be searched to its end, by its address.
        note: as for :class:`Messages`.
    """

    def __init__(
        self,
        table: pa.Table,
        search: Search,
        *,
        places: int,
        looked: int,
        has_more: bool,
        problems: Mapping[EntityAddress, str],
        note: str = "",
    ) -> None:
        super().__init__(table, where_from=str(search), note=note)
        self.places = places
        self.looked = looked
        self.has_more = has_more
        self.problems = dict(problems)

    @property
    def summary(self) -> str:
        """Return how much was searched and found, and what could not be searched, in a few sentences."""
        found = f"{len(self):,} message{'s' if len(self) != 1 else ''}" if len(self) else "No message"
        more = "; there are more" if self.has_more else ""
        chosen = self.where_from if self.where_from.startswith("where ") else f"with {self.where_from}"
        said = [f"{found} {chosen} in {self.places:,} places, {self.looked:,} messages checked{more}."]
        said += [f"{place}: {why}" for place, why in list(self.problems.items())[:_FEW_PROBLEMS]]
        rest = len(self.problems) - _FEW_PROBLEMS
        said += [f"{rest:,} more places could not be searched."] if rest > 0 else []
        return " ".join(filter(None, [*said, self.note]))

    def timeline(self) -> Figure:
        """Draw the messages over the time at which they were enqueued, a line for each entity, as a plotly figure."""
        rows = [(str(each.entity), each.enqueued_time, _hover(each)) for each in self]
        return timeline_figure([(place, time, said) for place, time, said in rows if time is not None])

    def _table(self, most: int) -> Table:
        rows: list[list[Any]] = []
        before = None
        for each in self[:most]:
            time = each.enqueued_time
            after = (
                None
                if before is None or time is None
                else f"+{duration_text(round((time - before).total_seconds(), 3))}"
            )
            before = time or before
            state = None if each.state is MessageState.ACTIVE else each.state.value
            place = time, after, str(each.entity), each.sequence_number
            rows.append([*place, _lineage(each), each.dead_letter_reason, each.subject, state, each.message_id])
        return *without_empty(_HEADERS, rows), self.summary


async def find_messages(
    namespace: AsyncNamespace,
    search: Search,
    entities: Sequence[EntityAddress] | None = None,
    progress: Progress | None = None,
    decode: Decode | None = None,
) -> FoundMessages:
    topics = None if entities is None else {each.name for each in entities}
    places = _places(await namespace.entities(topics), entities)
    present, unpacking, limiter = Present(), Allowance(UNPACKED_BYTES_OF_TABLE), few_at_once()
    errors: dict[EntityAddress, Exception] = {}
    decoding = None if decode is None else Decoding(decoder_for(decode))

    async def look(place: EntityAddress) -> pa.Table:
        try:
            cursor = PeekCursor(max_messages=search.depth)
            pages = namespace.peeker(place).unread_pages(cursor)
            kept = _kept(present.noting(tables_of_pages(pages, cursor, progress, unpacking)), search)
            kept = kept if decoding is None else decoding.tables(kept)
            # One more than wanted tells that there are more.
            return await first_matching(kept, search.where, search.most + 1, limiter, columns=columns_of(decoding))
        except SbNotebookError:
            raise
        except Exception as error:  # noqa: BLE001 (a place that is gone must not hide what others have)
            errors[place] = error
            return columns_of(decoding)

    found = await in_parallel(look, places, at_once=8)
    if errors and len(errors) == len(places):
        raise next(iter(errors.values()))
    whole: Any = pa.concat_tables([columns_of(decoding), *found])
    return FoundMessages(
        whole.sort_by(_ORDER).slice(0, search.most),
        search,
        places=len(places),
        looked=present.looked_at,
        has_more=len(whole) > search.most,
        problems={place: explained(error) for place, error in errors.items()},
        note="" if len(whole) or search.where is None else str(present),
    )


async def _kept(pages: AsyncGenerator[pa.Table], search: Search) -> AsyncGenerator[pa.Table]:
    async with aclosing(pages):
        async for table in pages:
            if len(kept := search.kept(table)):
                yield kept


def _places(listed: Sequence[EntityCounts], entities: Sequence[EntityAddress] | None) -> list[EntityAddress]:
    """Return where to search: entities, and those of their sub-queues that Service Bus counts messages in."""
    alone = [each for each in entities or () if each.sub_queue is not None]
    whole = None if entities is None else [each for each in entities if each.sub_queue is None]
    places: dict[EntityAddress, None] = {}
    for address in alone:
        for counts in choose_entities(listed, [address]):
            places[EntityAddress(counts.address.name, counts.address.subscription, address.sub_queue)] = None
    for counts in choose_entities(listed, whole):
        places[counts.address] = None
        places |= {address: None for address, count in dead_letter_counts([counts]) if count}
    return list(places)


def _lineage(message: PeekedMessage) -> str | None:
    original = message.application_properties.get(ORIGINAL_MESSAGE_ID)
    said = f"clone {message.resubmit_count} of {original}" if original else f"clone {message.resubmit_count}"
    return said if message.resubmit_count or original else None


def _hover(message: PeekedMessage) -> str:
    said = [f"#{message.sequence_number}", message.subject, message.message_id, message.dead_letter_reason]
    return " · ".join(label(each) for each in said if each)
