"""``%sb_lock`` and the magics that settle its messages."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from IPython.core.magic_arguments import argument

from sbnotebook.client import LockedBatch, Plan
from sbnotebook.client.coercions import address, duration
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import (
    DESCRIPTION,
    DRY_RUN,
    INTO,
    REASON,
    WHERE,
    YES,
    MagicArguments,
    count_or_all,
    option,
)
from sbnotebook.magics.current import Current, say
from sbnotebook.magics.plan_magics import MESSAGES, command, named
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, Release

_SETTLING: Final = (WHERE, MESSAGES, DRY_RUN, YES, INTO)
_RENEW_FOR: Final = "30m"


@command(
    argument("entity", nargs="?", metavar="ENTITY", help="such as orders; without it, show the held messages"),
    option("-n, --count N", "maximum number of messages, or all (default 10)", type=count_or_all),
    option("--session SESSION", "lock this session and its messages"),
    option("--next-session", "lock the next session that has messages"),
    option("--renew-for DURATION", "time to renew the locks for (default 30m)", default=_RENEW_FOR),
    option("--max-wait DURATION", "maximum time to wait for the first message (default 5s)", default=5.0),
    INTO,
)
def sb_lock(current: Current, args: MagicArguments) -> LockedBatch:
    """Lock messages and hold them, with their locks renewed; without an entity, show the held messages.

    A notebook shows them as a board, with the time that their locks have left. Messages that were locked before
    and not settled are released first; those that are still held when the kernel ends are released then.

    Example::

        %sb_lock orders -n 20
        %sb_lock
        %sb_complete --where "subject = 'ok'"
        %sb_release
    """
    if args.entity is None:
        if args.count is not None or args.session is not None or args.next_session:
            raise ConfigurationError("Name the entity to lock messages of: %sb_lock ENTITY -n 10.")
        return current.batch
    if args.session is not None and args.next_session:
        raise ConfigurationError("Give --session or --next-session, not both.")
    # Release the batch before, which may hold messages of the same entity.
    current.release_and_say()
    count = current.settings.lock_count if args.count is None else args.count or None
    entity, renew_for = current.namespace.entity(args.entity), args.renew_for
    # A session is held before its first messages are received; a batch is held with them.
    if args.session is not None:
        batch = entity.session(args.session, renew_for=renew_for)
    elif args.next_session:
        batch = entity.next_session(max_wait=args.max_wait, renew_for=renew_for)
    else:
        return current.hold(entity.lock(count, max_wait=args.max_wait, renew_for=renew_for))
    current.hold(batch).receive(count, max_wait=args.max_wait)
    return batch


@command(
    option(
        "--for DURATION", "time to renew the locks for, from now (default 30m)", dest="renew_for", default=_RENEW_FOR
    ),
    INTO,
)
def sb_renew(current: Current, args: MagicArguments) -> datetime | None:
    """Renew the locks of the held messages for longer, from now.

    Example::

        %sb_renew --for 2h
    """
    batch = current.batch
    until = batch.extend(args.renew_for)
    say(f"The locks of {len(batch):,} messages are renewed until {until:%Y-%m-%d %H:%M:%S} UTC.")
    return until if args.into else None


@command(*_SETTLING)
def sb_complete(current: Current, args: MagicArguments) -> Plan:
    """Complete locked messages: the service removes them.

    Example::

        %sb_complete --where "subject = 'ok'" --dry-run
    """
    return _plan(current, Complete(), args)


@command(option("--delay DURATION", "time to hold them first, such as 2m; the cell waits"), *_SETTLING)
def sb_abandon(current: Current, args: MagicArguments) -> Plan:
    """Abandon locked messages: they are delivered again, with a delivery count one higher.

    Example::

        %sb_abandon --where "delivery_count < 3"
        %sb_abandon --delay 1s
    """
    return _plan(current, Abandon(duration(args.delay)), args)


@command(REASON, DESCRIPTION, *_SETTLING)
def sb_dead_letter(current: Current, args: MagicArguments) -> Plan:
    """Move locked messages to the dead-letter queue.

    Example::

        %sb_dead_letter --reason Invalid --description "No tail number" --where "body_json->>'$.tailnum' is null"
    """
    return _plan(current, DeadLetter(args.reason, args.description), args)


@command(
    option("--wake-after DURATION", "time until a wake-up message becomes active, such as 1h"),
    option("--wake-to DESTINATION", "queue or topic for the wake-up message (default: the queue itself)"),
    *_SETTLING,
)
def sb_defer(current: Current, args: MagicArguments) -> Plan:
    """Defer locked messages: from then on they can only be received by sequence number.

    %sb_deferred shows and settles them.

    Example::

        %sb_defer --where "subject = 'later'"
        %sb_defer --wake-after 1h
    """
    decision = Defer(duration(args.wake_after), address(args.wake_to))
    return _plan(current, decision, args)


@command(*_SETTLING)
def sb_release(current: Current, args: MagicArguments) -> Plan:
    """Release locked messages, as if they had not been delivered: their delivery counts stay.

    Example::

        %sb_release
    """
    return _plan(current, Release(), args)


def _plan(current: Current, decision: Decision, args: MagicArguments) -> Plan:
    batch = current.batch
    if batch.lost:
        say(f"{len(batch.lost):,} locks were lost: these messages are not held any more.")
    return batch.plan(decision, named(args, batch.address), where=args.where)
