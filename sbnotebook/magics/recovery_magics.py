"""The magics of the journal and the archive: finish interrupted resubmits, see what became of clones, and undo."""

from __future__ import annotations

from typing import Final

from IPython.core.magic_arguments import argument
from IPython.display import display

from sbnotebook.analysis import tables
from sbnotebook.client import Namespace, Plan
from sbnotebook.client.history import MOST_RESUBMITS, History, Remembered
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.magics.arguments import (
    ACTING,
    INTO,
    LAST_REPORT,
    MAYBE_ENTITY,
    MagicArguments,
    Quoted,
    option,
)
from sbnotebook.magics.current import Current, say
from sbnotebook.magics.plan_magics import apply_options, command, confirm, variable
from sbnotebook.model import Abandon, DeadLetter, Defer, Release, Report, Send

_OTHER: Final = option(
    "--other NAME",
    "variable with another namespace that clones were sent to, such as other = connect(…). Repeatable",
    action="append",
)


_STILL_THERE: Final = {
    DeadLetter.verb: "Dead letters are not removed: %sb_resubmit {0.dead_letter} sends them back.",
    Defer.verb: "Deferred messages are not removed: %sb_deferred {0} shows and settles them.",
    Send.verb: "You cannot recall sent messages: %sb_pick {0} or %sb_purge {0} removes them.",
    Abandon.verb: "Abandoned messages are not removed: they are in {0}.",
    Release.verb: "Released messages are not removed: they are in {0}.",
}


class Plans(list[Plan]):
    """Plans, shown in sequence."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(tables.preview_html(plan.preview()) for plan in self)


@command(
    argument("entity", nargs="?", metavar="ENTITY", help="show the fates of the resubmits from there"),
    option("--fates", "show the fate of each resubmit: consumed, waiting, or back"),
    option("-n, --count N", f"look up the last N resubmits (default {MOST_RESUBMITS})"),
    _OTHER,
    option(
        "--note TEXT",
        "the fingerprint of a cause as %%sb_groups shows it, and a note to keep; an empty text removes it",
        nargs="+",
    ),
    INTO,
)
def sb_journal(current: Current, args: MagicArguments) -> Remembered | History | None:
    """Show the records of this machine: unfinished work, removed messages, the fates of resubmits, and notes.

    Alone it shows unfinished work, and the magic that continues it. Looking up fates locks nothing.

    Example::

        %sb_journal
        %sb_journal orders/$dlq
        %sb_journal --fates -n 100 --other other
        %sb_journal --note 4a7d1ed41474 price list was empty, see INC-4711
    """
    namespace = current.namespace
    if args.note is not None:
        _note(current, *args.note)
        return None
    if args.fates or args.entity or args.count or args.other:
        most = args.count or MOST_RESUBMITS
        return namespace.history(args.entity, max_messages=most, others=_others(args))
    return namespace.remembered()


def _note(current: Current, fingerprint: str, *text: str) -> None:
    namespace = current.namespace
    if text:
        namespace.note(fingerprint, " ".join(text))
    say(namespace.notes().get(fingerprint, f"There is no note on {fingerprint[:40]}."))


@command(
    MAYBE_ENTITY,
    option("--resend-unknown", "send again what may have arrived and been consumed already"),
    option("--max-wait DURATION", "maximum time to wait for locked originals", default=0.0),
    _OTHER,
    *ACTING,
)
def sb_resume(current: Current, args: MagicArguments) -> Plans | Report:
    """Finish resubmits that a crash or a lost connection interrupted.

    sbnotebook recognises a clone that was sent already, and does not send it again.

    Example::

        %sb_resume --dry-run
        %sb_resume orders/$dlq
        %sb_resume orders/$dlq --other other
    """
    others = _others(args)
    found = current.namespace.resume(
        args.entity, resend_unknown=args.resend_unknown, max_wait=args.max_wait, others=others
    )
    plans = Plans(found)
    if not plans:
        say("There are no interrupted resubmits.")
    if args.dry_run:
        return plans
    if not plans:
        return Report()
    display(plans)
    count = sum(map(len, plans))
    places = ", ".join(str(plan.entity) for plan in plans)
    on = plans[0].inner.on
    question = f"Finish {count:,} interrupted resubmit{'' if count == 1 else 's'} of {places}{on}?"
    confirm(current, question, count, args, leaves=bool(others))
    return _apply_all(current, plans, args)


def _apply_all(current: Current, plans: Plans, args: MagicArguments) -> Report:
    done = Report()
    for plan in plans:
        try:
            done += plan.apply(**apply_options(current, args))
        except BaseException as error:
            if done or hasattr(error, "report"):
                error.__dict__["report"] = done + getattr(error, "report", Report())
            raise
    return done


@command(
    argument("what", nargs="?", metavar="REPORT", help=f"variable with a report, or an entity (default {LAST_REPORT})"),
    option("--since DURATION", "messages removed since then, such as 2h", type=str),
    option("--to DESTINATION", "destination (default: the entity of each message)"),
    option("--include-unknown", "also those that may be there already"),
    option("--include-resubmitted", "also originals of resubmits: their clones exist, so this doubles them"),
    option("--new-ids", "give them new message ids", default=None),
    *ACTING,
)
def sb_undo(current: Current, args: MagicArguments) -> Plan:
    """Send removed messages back from the archive on this machine: those of a report, or of an entity since a time.

    Example::

        %sb_lock orders -n 5
        %sb_complete --into report
        %sb_undo report --dry-run

        %sb_undo orders --since 2h
    """
    report, entity = _of(args)
    try:
        plan = current.namespace.undo(
            report,
            entity=entity,
            since=args.since,
            to=args.to,
            include_unknown=args.include_unknown,
            include_resubmitted=args.include_resubmitted,
            new_ids=args.new_ids,
        )
    except DecisionError as error:
        raise DecisionError(f"{error} {_another_way(report)}".rstrip()) from None
    return plan


def _others(args: MagicArguments) -> list[Namespace]:
    """Return the namespaces in the variables that ``--other`` names."""
    found = [variable(args, name) for name in args.other or ()]
    if not all(isinstance(each, Namespace) for each in found):
        raise ConfigurationError("--other names a variable with a namespace, such as other = connect(…).")
    return found


def _another_way(report: Report | None) -> str:
    """Return how to take back messages that were not removed."""
    verbs = {outcome.verb for outcome in report or ()}
    said = _STILL_THERE.get(verbs.pop()) if len(verbs) == 1 else None
    return said.format(report[0].entity) if report and said else ""


def _of(args: MagicArguments) -> tuple[Report | None, str | None]:
    """Return the report, or the entity, to undo."""
    if args.what is None:
        if args.since is not None:
            return None, None
        if LAST_REPORT not in args.variables:
            raise ConfigurationError("Choose what to undo: the variable of a report, or an entity, or --since 2h.")
        return args.variables[LAST_REPORT], None
    if not isinstance(args.what, Quoted) and isinstance(args.variables.get(args.what), Report):
        return args.variables[args.what], None
    return None, args.what
