"""Settling chosen messages: in the middle of an entity, while all others stay as they are, or by their lock tokens.

See :mod:`sbnotebook.settlement.locking.ahead` for the way to reach a message that is not the first.

The service owns a lock, not the connection. While the lock lasts, its token settles the message over any connection
(operation ``com.microsoft:update-disposition``; Service Bus documentation, "AMQP 1.0 in Azure Service Bus:
request-response-based operations"). Only releasing a message needs the link that delivered it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from uuid import UUID

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Decision,
    EntityAddress,
    LockedMessage,
    MessageState,
    PeekedMessage,
    ReceivedMessage,
    Release,
    Resubmit,
)
from sbnotebook.model.durations import duration_text
from sbnotebook.model.edits import Edit
from sbnotebook.settlement.actions.reach import Chosen, Reach, Selection, select, settling
from sbnotebook.settlement.actions.resubmit import plan_resubmit
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.ahead import DEFAULT_MAX_HELD, Search
from sbnotebook.settlement.place import LARGEST_NUMBER, Place, Resources
from sbnotebook.settlement.plan import Plan, Progress, check_decision

LockReference = LockedMessage | tuple[int, UUID | str]
"""A message as it was locked, or its sequence number and lock token."""


def plan_by_token(place: Place, decision: Decision, locks: Iterable[LockReference]) -> Plan:
    """Return a plan to settle messages by their lock tokens, which alone decide."""
    check_decision(decision, place.address)
    if isinstance(decision, Release):
        raise DecisionError(
            "A message can be released only by the batch that locked it: abandon it, which raises its delivery count, "
            "or let its lock end."
        )
    chosen = tuple(_locked(lock, place.address) for lock in locks)

    async def work(run: Run) -> None:
        async with place.batch() as adopting:
            run.begin_with(await adopting.adopt(chosen))
            await adopting.settle_in(decision, run.messages, run)

    return place.new_plan(decision, chosen, work)


def _locked(lock: LockReference, entity: EntityAddress) -> LockedMessage:
    if isinstance(lock, LockedMessage):
        if lock.entity != entity:
            raise DecisionError(f"#{lock.sequence_number} is in {lock.entity}, not in {entity}.")
        return lock
    try:
        number, token = lock
        return LockedMessage(entity=entity, sequence_number=int(number), lock_token=UUID(str(token)))
    except (TypeError, ValueError):
        raise DecisionError(
            "A lock is a message that was locked, or its sequence number and its lock token, "
            'such as (7, "7a5ebd3e-b74d-4b4e-9fc2-8a1f0f6f0b6c").'
        ) from None


# ---------------------------------------------------------------------- the plan


async def plan_pick(  # noqa: PLR0913 (each option has a name)
    place: Place,
    messages: Iterable[ReceivedMessage | int],
    decision: Decision,
    *,
    edit: Edit | None = None,
    abandon_rest: bool = False,
    max_held: int = DEFAULT_MAX_HELD,
    archived: bool = True,
    to_namespace: Resources | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Return a plan for chosen messages; making it peeks from the head to the last of them, for its preview."""
    _check(decision, place.address, edit)
    # A message that is abandoned at once would come again next: it is kept to the end, and not read.
    search = Search(bodies=not isinstance(decision, Abandon), max_held=max_held, abandon_rest=abandon_rest)
    given = _by_number(messages, place.address)
    seen = await select(place, Chosen(numbers=given.keys()), progress)
    if seen.between >= max_held:
        # Those that are chosen are settled as they come, and need a place, too.
        raise DecisionError(
            f"{seen.between:,} other messages are before the last chosen one, and all of them would be locked. Pick "
            f"from the first ones, or allow more with max_held (it is {max_held:,})."
        )
    found = {message.sequence_number: message for message in seen.messages}
    chosen = tuple(
        message or found.get(number) or PeekedMessage(entity=place.address, sequence_number=number)
        for number, message in given.items()
    )
    search = replace(search, expected=seen.to_lock)
    if isinstance(decision, Resubmit):
        plan = plan_resubmit(place, chosen, decision, edit=edit, search=search, to_namespace=to_namespace)
    else:
        states = {number: message.state for number, message in found.items()}
        work = partial(_pick, place, states, seen.in_session, search, archived)
        plan = place.new_plan(decision, chosen, work, total=seen.to_lock, others=seen.between)
    more = " ".join(_notes(seen, len(chosen), place.address, abandon_rest=abandon_rest))
    options = _unusual(archived=archived, abandon_rest=abandon_rest, max_held=max_held)
    return replace(plan, more=more, options=options)


def _unusual(*, archived: bool, abandon_rest: bool, max_held: int) -> Mapping[str, bool | int]:
    usual = {
        "archived": (archived, True),
        "abandon_rest": (abandon_rest, False),
        "max_held": (max_held, DEFAULT_MAX_HELD),
    }
    return {name: given for name, (given, default) in usual.items() if given != default}


def _check(decision: Decision, address: EntityAddress, edit: Edit | None) -> None:
    check_decision(decision, address)
    if isinstance(decision, Release):
        raise DecisionError("To release picked messages would change nothing: complete, defer or resubmit them.")
    if edit is not None and not isinstance(decision, Resubmit):
        raise DecisionError(f"An edit changes what a resubmit sends; to {decision.verb} sends nothing.")


async def _pick(
    place: Place,
    states: Mapping[int, MessageState],
    in_session: Mapping[str | None, int],
    search: Search,
    archived: bool,
    run: Run,
) -> None:
    locked, run.progress = run.progress, None  # its progress counts the messages that are locked
    reach = Reach(
        place,
        run,
        settling(run),
        archived=archived,
        search=search,
        in_session=in_session,
        locked=locked,
    )
    await reach.active([m for m in run.messages if states.get(m.sequence_number) is MessageState.ACTIVE])
    await reach.find_missing(run.without_outcome())


def _by_number(
    messages: Iterable[ReceivedMessage | int], address: EntityAddress
) -> Mapping[int, ReceivedMessage | None]:
    """Return the chosen messages by number, each once; None where only the number is given."""
    given: dict[int, ReceivedMessage | None] = {}
    for message in messages:
        number = message.sequence_number if isinstance(message, ReceivedMessage) else message
        if isinstance(message, ReceivedMessage) and message.entity != address:
            raise DecisionError(f"Message #{number} is in {message.entity}, not in {address}: pick it there.")
        if type(number) is not int or not 1 <= number <= LARGEST_NUMBER:
            raise DecisionError(
                f"{str(number)[:40]!r} is not a sequence number: give messages, or whole numbers from 1."
            )
        given[number] = given.get(number) or (message if isinstance(message, ReceivedMessage) else None)
    return given


def _notes(seen: Selection, chosen: int, address: EntityAddress, *, abandon_rest: bool) -> Iterable[str]:
    absent = chosen - len(seen.messages)
    deferred, scheduled = seen.states[MessageState.DEFERRED], seen.states[MessageState.SCHEDULED]
    notes = {
        _about_others(seen, abandon_rest=abandon_rest): seen.between,
        # Dead letters were delivered, most of them.
        f"{seen.delivered:,} of all these were delivered before: a consumer may be at work.": (
            seen.delivered and address.sub_queue is None
        ),
        f"Of the chosen messages, {_are(deferred)} deferred: sbnotebook receives them by number.": deferred,
        f"Of the chosen messages, {_are(scheduled)} scheduled, and cannot be received before their time.": scheduled,
        f"Of the chosen messages, {_are(absent)} not in the entity.": absent,
    }
    return [note for note, is_said in notes.items() if is_said]


def _about_others(seen: Selection, *, abandon_rest: bool) -> str:
    others = seen.between
    # A message is received about as fast as it is peeked, and released in half the time.
    seconds = max(1, round(2 * seen.seconds))
    back = "released, or abandoned where that is not possible" if abandon_rest else "released"
    return (
        f"{others:,} other message{'s' if others != 1 else ''} before the last of them: locked for about "
        f"{duration_text(seconds)} and then {back}. Meanwhile, consumers do not receive "
        f"{'it' if others == 1 else 'them'}, and you cannot pick messages that a consumer holds."
    )


def _are(count: int) -> str:
    return f"{count:,} {'is' if count == 1 else 'are'}"
