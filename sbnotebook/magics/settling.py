"""``%sb_lock`` and the magics that settle what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument

from sbnotebook.client import LockedBatch
from sbnotebook.magics.arguments import COUNT, DRY_RUN, ENTITY, INTO, WHERE, YES, Given, command
from sbnotebook.magics.display import Applicable, carry_out, say
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, Release, Report

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.current import Current

__all__ = ["Settling"]

_LOCKED: Final = 10
"""Messages that are locked unless the user says how many."""
_SETTLING: Final = (WHERE, DRY_RUN, YES, INTO)


@magics_class
class Settling(Magics):
    """Magics that lock messages and settle them."""

    def __init__(self, shell: InteractiveShell, current: Current) -> None:
        super().__init__(shell)
        self._current = current

    @line_magic
    @command(ENTITY, COUNT, INTO)
    def sb_lock(self, given: Given) -> LockedBatch:
        """Lock messages and hold them, with their locks renewed, until they are settled.

        What was locked before and not settled is released first, and so is what is still held when the kernel ends.

        Example::

            %sb_lock orders -n 20
            %sb_complete --where "subject = 'ok'"
            %sb_release
        """
        released = self._current.release()
        if released:
            say(f"Released {released:,} of the messages that were held before.")
        return self._current.lock(given.entity, given.count or _LOCKED)

    @line_magic
    @command(*_SETTLING)
    def sb_complete(self, given: Given) -> Applicable | Report:
        """Complete locked messages: they are done with, and the service removes them.

        Example::

            %sb_complete --where "subject = 'ok'" --dry-run
        """
        return self._settle(Complete(), given)

    @line_magic
    @command(*_SETTLING)
    def sb_abandon(self, given: Given) -> Applicable | Report:
        """Abandon locked messages: they are delivered again, with a delivery count one higher.

        Example::

            %sb_abandon --where "delivery_count < 3"
        """
        return self._settle(Abandon(), given)

    @line_magic
    @command(
        argument("--reason", metavar="TEXT", help="short, and the same for the same cause"),
        argument("--description", metavar="TEXT", help="what is wrong with these messages"),
        *_SETTLING,
    )
    def sb_deadletter(self, given: Given) -> Applicable | Report:
        """Move locked messages to the dead-letter queue.

        Example::

            %sb_deadletter --reason Invalid --description "No tail number" --where "body_json->>'$.tailnum' is null"
        """
        return self._settle(DeadLetter(given.reason, given.description), given)

    @line_magic
    @command(*_SETTLING)
    def sb_defer(self, given: Given) -> Applicable | Report:
        """Defer locked messages: from then on they are received by their sequence numbers only.

        Example::

            %sb_defer --where "subject = 'later'"
        """
        return self._settle(Defer(), given)

    @line_magic
    @command(*_SETTLING)
    def sb_release(self, given: Given) -> Applicable | Report:
        """Release locked messages: they are given back as if they had not been delivered.

        Example::

            %sb_release
        """
        return self._settle(Release(), given)

    def _settle(self, decision: Decision, given: Given) -> Applicable | Report:
        batch = self._current.batch
        if batch.lost:
            say(f"{len(batch.lost):,} locks were lost: these messages are not held any more.")
        asks = not self._current.namespace.is_emulator and not isinstance(decision, Release)
        return carry_out(batch.plan(decision, where=given.where), given, asks=asks)
