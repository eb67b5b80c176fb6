"""``%sb_journal``, ``%sb_resume`` and ``%sb_undo``: what was cut off, and what is to be taken back."""

from __future__ import annotations

from typing import Final

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument
from IPython.display import display

from sbnotebook.analysis import tables
from sbnotebook.client import Plan
from sbnotebook.client.remembered import Remembered
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.magics.acting import Acting, Applicable
from sbnotebook.magics.arguments import (
    DRY_RUN,
    INTO,
    MAX_IN_FLIGHT,
    MAYBE_ENTITY,
    RATE,
    YES,
    Given,
    Quoted,
    command,
    seconds,
)
from sbnotebook.magics.display import say
from sbnotebook.magics.failing import LAST_REPORT
from sbnotebook.model import Abandon, DeadLetter, Defer, Release, Report, Send

__all__ = ["Mending", "Plans"]

_ACTING: Final = (MAX_IN_FLIGHT, RATE, DRY_RUN, YES, INTO)


_STILL_THERE: Final = {
    DeadLetter.verb: "Dead letters are not removed: %sb_resubmit {0.dead_letter} sends them back.",
    Defer.verb: "Deferred messages are not removed: %sb_deferred {0} shows and settles them.",
    Send.verb: "What was sent cannot be called back: %sb_pick {0} or %sb_purge {0} removes it.",
    Abandon.verb: "Abandoned messages are not removed: they stand in {0}.",
    Release.verb: "Released messages are not removed: they stand in {0}.",
}


class Plans(list[Plan]):
    """Plans that are shown one after the other."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(tables.preview_html(plan.preview()) for plan in self)


@magics_class
class Mending(Acting):
    """Magics that go by what is written down on this machine."""

    @line_magic
    @command(INTO)
    def sb_journal(self, _given: Given) -> Remembered:
        """Show what this machine remembers of the namespace, and the magic that goes on with each of it.

        Resubmits that were cut off, messages that were deferred, those that were removed and can be sent back, and
        notes on causes.

        Example::

            %sb_journal
        """
        return self.namespace.remembered()

    @line_magic
    @command(
        MAYBE_ENTITY,
        argument(
            "--resend-unknown", action="store_true", help="send again what may have arrived and been consumed already"
        ),
        argument("--max-wait", metavar="DURATION", type=seconds, default=0.0, help="wait for originals still locked"),
        *_ACTING,
    )
    def sb_resume(self, given: Given) -> Plans | Report:
        """Finish the resubmits that were cut off, by a crash or a connection that was lost.

        A clone that was sent already is recognised, and not sent again.

        Example::

            %sb_resume --dry-run
            %sb_resume orders/$dlq
        """
        plans = Plans(self.namespace.resume(given.entity, resend_unknown=given.resend_unknown, max_wait=given.max_wait))
        if not plans:
            say("No resubmit was cut off.")
        if given.dry_run:
            return plans
        if not plans:
            return Report()
        display(plans)
        self.confirm(sum(map(len, plans)), given)
        return self._apply_all(plans, given)

    def _apply_all(self, plans: Plans, given: Given) -> Report:
        done = Report()
        for plan in plans:
            try:
                done += self.apply(plan, given)
            except BaseException as error:
                if done or hasattr(error, "report"):
                    error.__dict__["report"] = done + getattr(error, "report", Report())
                raise
        return done

    @line_magic
    @command(
        argument(
            "what", nargs="?", metavar="REPORT", help=f"the variable of a report, or an entity (default {LAST_REPORT})"
        ),
        argument("--since", metavar="DURATION", help="what was removed since, such as 2h"),
        argument("--to", metavar="DESTINATION", help="where to (default where each message stood)"),
        argument("--include-unknown", action="store_true", help="also those that may be there already"),
        argument("--new-ids", action="store_true", default=None, help="give them new message ids"),
        *_ACTING,
    )
    def sb_undo(self, given: Given) -> Applicable | Report:
        """Send removed messages back, from the archive on this machine: those of a report, or of an entity since then.

        Example::

            %sb_lock orders -n 5
            %sb_complete --into report
            %sb_undo report --dry-run

            %sb_undo orders --since 2h
        """
        report, entity = _of(given)
        try:
            plan = self.namespace.undo(
                report,
                entity=entity,
                since=given.since,
                to=given.to,
                include_unknown=given.include_unknown,
                new_ids=given.new_ids,
            )
        except DecisionError as error:
            raise DecisionError(f"{error} {_another_way(report)}".rstrip()) from None
        return self.carry_out(plan, given)


def _another_way(report: Report | None) -> str:
    """How else something is taken back, where nothing was removed."""
    verbs = {outcome.verb for outcome in report or ()}
    said = _STILL_THERE.get(verbs.pop()) if len(verbs) == 1 else None
    return said.format(report[0].entity) if report and said else ""


def _of(given: Given) -> tuple[Report | None, str | None]:
    """The report, or the entity, that is meant."""
    if given.what is None:
        if given.since is not None:
            return None, None
        if LAST_REPORT not in given.variables:
            raise ConfigurationError("Say what to undo: the variable of a report, or an entity, or --since 2h.")
        return given.variables[LAST_REPORT], None
    if not isinstance(given.what, Quoted) and isinstance(given.variables.get(given.what), Report):
        return given.variables[given.what], None
    return None, given.what
