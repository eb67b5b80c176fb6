"""``%sb_lock`` and the magics that settle what it holds."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument

from sbnotebook.client import LockedBatch
from sbnotebook.client.coercions import duration
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.acting import Acting, Applicable
from sbnotebook.magics.arguments import (
    COUNT,
    DESCRIPTION,
    DRY_RUN,
    ENTITY,
    INTO,
    REASON,
    WHERE,
    YES,
    Given,
    command,
    seconds,
)
from sbnotebook.magics.display import say
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, EntityAddress, Release, Report

__all__ = ["Settling"]

_SETTLING: Final = (WHERE, DRY_RUN, YES, INTO)
_RENEW_FOR: Final = "30m"


@magics_class
class Settling(Acting):
    """Magics that lock messages and settle them."""

    @line_magic
    @command(
        ENTITY,
        COUNT,
        argument("--session", metavar="SESSION", help="lock the session of this name and messages of it"),
        argument("--next-session", action="store_true", help="lock the next session that has messages"),
        argument("--renew-for", metavar="DURATION", default=_RENEW_FOR, help="how long locks are kept (default 30m)"),
        argument("--max-wait", metavar="DURATION", type=seconds, default=5.0, help="wait for the first (default 5s)"),
        INTO,
    )
    def sb_lock(self, given: Given) -> LockedBatch:
        """Lock messages and hold them, with their locks renewed, until they are settled.

        In a notebook they are shown as a board, with the time that their locks have left. What was locked before and
        not settled is released first, and so is what is still held when the kernel ends.

        Example::

            %sb_lock orders -n 20
            %sb_complete --where "subject = 'ok'"
            %sb_release
        """
        if given.session is not None and given.next_session:
            raise ConfigurationError("Give --session or --next-session, not both.")
        released = self.current.release()
        if released:
            say(f"Released {released:,} of the messages that were held before.")
        count = given.count or self.current.settings.lock_count
        entity, renew_for = self.namespace.entity(given.entity), given.renew_for
        if given.session is not None:
            batch = entity.session(given.session, renew_for=renew_for)
        elif given.next_session:
            batch = entity.next_session(max_wait=given.max_wait, renew_for=renew_for)
        else:
            return self.current.hold(entity.lock(count, max_wait=given.max_wait, renew_for=renew_for))
        self.current.hold(batch).receive(count, max_wait=given.max_wait)
        return batch

    @line_magic
    @command(INTO)
    def sb_locks(self, _given: Given) -> LockedBatch:
        """Show the messages that are held, and until when.

        Example::

            %sb_locks
        """
        return self.current.batch

    @line_magic
    @command(
        argument("--for", dest="renew_for", metavar="DURATION", default=_RENEW_FOR, help="from now (default 30m)"),
        INTO,
    )
    def sb_renew(self, given: Given) -> datetime | None:
        """Hold the locked messages for longer: their locks are renewed for so long from now.

        Example::

            %sb_renew --for 2h
        """
        batch = self.current.batch
        until = batch.extend(given.renew_for)
        say(f"The locks of {len(batch):,} messages are renewed until {until:%Y-%m-%d %H:%M:%S} UTC.")
        return until if given.into else None

    @line_magic
    @command(*_SETTLING)
    def sb_complete(self, given: Given) -> Applicable | Report:
        """Complete locked messages: they are done with, and the service removes them.

        Example::

            %sb_complete --where "subject = 'ok'" --dry-run
        """
        return self._settle(Complete(), given)

    @line_magic
    @command(
        argument(
            "--delay", metavar="DURATION", help="hold them for so long first, such as 2m; the cell waits meanwhile"
        ),
        *_SETTLING,
    )
    def sb_abandon(self, given: Given) -> Applicable | Report:
        """Abandon locked messages: they are delivered again, with a delivery count one higher.

        Example::

            %sb_abandon --where "delivery_count < 3"
            %sb_abandon --delay 1s
        """
        return self._settle(Abandon(duration(given.delay) if given.delay is not None else None), given)

    @line_magic
    @command(REASON, DESCRIPTION, *_SETTLING)
    def sb_deadletter(self, given: Given) -> Applicable | Report:
        """Move locked messages to the dead-letter queue.

        Example::

            %sb_deadletter --reason Invalid --description "No tail number" --where "body_json->>'$.tailnum' is null"
        """
        return self._settle(DeadLetter(given.reason, given.description), given)

    @line_magic
    @command(
        argument("--wake-after", metavar="DURATION", help="send a message then that says: receive it now, such as 1h"),
        argument("--wake-to", metavar="DESTINATION", help="where that message goes (default the queue itself)"),
        *_SETTLING,
    )
    def sb_defer(self, given: Given) -> Applicable | Report:
        """Defer locked messages: from then on they are received by their sequence numbers only.

        %sb_deferred shows them, and settles them.

        Example::

            %sb_defer --where "subject = 'later'"
            %sb_defer --wake-after 1h
        """
        after = duration(given.wake_after) if given.wake_after is not None else None
        to = EntityAddress.parse(given.wake_to) if given.wake_to is not None else None
        return self._settle(Defer(after, to), given)

    @line_magic
    @command(*_SETTLING)
    def sb_release(self, given: Given) -> Applicable | Report:
        """Release locked messages: they are given back as if they had not been delivered.

        Example::

            %sb_release
        """
        return self._settle(Release(), given)

    def _settle(self, decision: Decision, given: Given) -> Applicable | Report:
        batch = self.current.batch
        if batch.lost:
            say(f"{len(batch.lost):,} locks were lost: these messages are not held any more.")
        plan = batch.plan(decision, where=given.where)
        return self.carry_out(plan, given, asks=not isinstance(decision, Release))
