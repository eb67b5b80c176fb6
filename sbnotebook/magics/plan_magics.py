"""Show the plan of a magic, ask, carry it out and report; and the magics that recover: journal, resume and undo."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from IPython.core.error import StdinNotImplementedError
from IPython.core.magic import needs_local_scope, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from sbnotebook.analysis import tables
from sbnotebook.analysis.groups import CAUSE, TRAITS, Trait
from sbnotebook.client import Entity, Messages, Namespace, Plan
from sbnotebook.client.history import MOST_RESUBMITS, History, Remembered
from sbnotebook.client.targets import Choice, chosen
from sbnotebook.errors import ConfigurationError, DecisionError, ReadOnlyError, near_match
from sbnotebook.magics.arguments import (
    ACTING,
    COUNT,
    FROM,
    INTO,
    LAST_REPORT,
    MAYBE_ENTITY,
    STATE,
    UP_TO,
    WHERE,
    MagicArguments,
    Quoted,
    in_one_line,
    option,
    parsed,
    refuse_connection_string,
)
from sbnotebook.magics.current import Current, say
from sbnotebook.model import Abandon, DeadLetter, Defer, EntityAddress, ReceivedMessage, Release, Report, Resubmit, Send
from sbnotebook.model.decision import AUTO
from sbnotebook.model.edits import Edit, edit_json

_STEP: Final = re.compile(r"\.(?P<attribute>[a-zA-Z]\w*+)|\[(?P<key>[^\]]*+)(?:\]|\Z)")
"""An attribute, or an index or key, of a variable's value."""
_PART: Final = re.compile(r"(?P<name>[^\W\d]\w*+)(?P<rest>(?:\.[a-zA-Z]\w*+|\[[^\]]*+\])*+)")


COMMANDS: Final[dict[str, Any]] = {}
"""The functions of the magics, by the magic's name."""


def command(*arguments: argument, takes_cell: bool = False) -> Callable[[Any], Any]:
    """Make a function of the shell's state and of the parsed arguments a magic with these arguments.

    A plan that it returns is shown, confirmed and carried out. The result is shown, or bound by ``--into``.
    sbnotebook's own errors and those of the service are one line without a traceback; other errors, such as those of
    the user's own functions, keep theirs.
    """

    def decorate(function: Any) -> Any:
        summary = str(function.__doc__).partition("\n")[0]
        # IPython's decorators collect the arguments on the function, from the last to the first.
        for each in reversed(arguments):
            function = each(function)
        function = magic_arguments()(function)
        function.summary, function.takes_cell = summary, takes_cell
        COMMANDS[function.__name__] = function
        return function

    return decorate


def register_commands(current: Current) -> None:
    for name, function in COMMANDS.items():
        kind = "line_cell" if function.takes_cell else "line"
        current.shell.register_magic_function(_magic(function, current), kind, name)


def _magic(function: Any, current: Current) -> Callable[..., object]:
    shell = current.shell

    @no_var_expand
    @needs_local_scope
    @functools.wraps(function)
    def run(line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> object:
        args = MagicArguments(cell, {**shell.user_ns, **(local_ns or {})})
        with in_one_line(shell, args):
            refuse_connection_string(line)
            if not parsed(function.parser, line, args):
                return None
            result = function(current, args)
            if isinstance(result, Plan):
                result = carry_out(current, result, args)
        # The last report stays in a variable; --into binds the result instead of showing it.
        if isinstance(result, Report):
            shell.push({LAST_REPORT: result})
        name = getattr(args, "into", None)
        if name is None:
            return result
        shell.push({name: result})
        return None

    return run


def carry_out(current: Current, plan: Plan, args: MagicArguments) -> Plan | Report:
    options, plan = apply_options(current, args), _with_ramp(plan, args)
    if args.dry_run:
        return plan
    display(plan)
    asks = plan.verb != Release.verb  # a release changes nothing
    leaves = isinstance(plan.decision, Resubmit) and plan.decision.to_host is not None
    confirm(current, plan.question, len(plan), args, asks=asks, leaves=leaves)
    return plan.apply(**options, show_progress=len(plan) > 0)  # the plan said already that there is nothing


def confirm(
    current: Current, question: str, count: int, args: MagicArguments, *, asks: bool = True, leaves: bool = False
) -> None:
    """Ask whether to carry out the plan that was shown, where the settings want that."""
    namespace = current.namespace
    if namespace.read_only:
        raise ReadOnlyError(namespace.host)  # before a pointless question
    if not (asks and count) or args.yes:
        return
    is_emulator = namespace.is_emulator and not leaves
    if current.settings.asks(is_emulator=is_emulator):
        _ask(question)
    elif is_emulator:
        say(f"Not asked, because {namespace.host} is an emulator.")


def apply_options(current: Current, args: MagicArguments) -> dict[str, Any]:
    in_flight = getattr(args, "max_in_flight", None) or current.settings.max_in_flight or AUTO
    return {"max_in_flight": in_flight, "rate": getattr(args, "rate", None)}


def _with_ramp(plan: Plan, args: MagicArguments) -> Plan:
    if getattr(args, "ramp", None) is not None:
        watch = "10m" if args.watch is None else args.watch
        return plan.with_ramp(args.ramp, watch=watch, stop_at=args.stop_at)
    if getattr(args, "watch", None) is not None or getattr(args, "stop_at", 0):
        raise ConfigurationError("--watch and --stop-at go with --ramp, such as --ramp 1,5,20,100.")
    return plan


def _ask(question: str) -> None:
    try:
        answer = input(f"{question} [y/N] ")
    except (EOFError, StdinNotImplementedError):
        raise DecisionError("This kernel cannot ask, so nothing was done: check the plan and add --yes.") from None
    except KeyboardInterrupt:
        answer = "no"
    if answer.strip().lower() not in ("y", "yes"):
        raise DecisionError("Nothing was done: the plan was not confirmed.")


def variable(args: MagicArguments, name: str) -> Any:
    """Return the value of a user's variable, or of what an index or attribute takes from it, as in ``causes[1]``."""
    if (place := _PART.fullmatch(name)) and place["rest"]:
        return _part(variable(args, place["name"]), name, place["rest"])
    if name not in args.variables:
        near = near_match(name, (each for each in args.variables if not each.startswith("_")), cutoff=0.75)
        hint = f" (did you mean {near}?)" if near else ""
        text = ", and a text to send needs quotes" if hasattr(args, "what") else ""
        raise ConfigurationError(f"There is no variable {name[:40]!r}{hint}{text}.")
    return args.variables[name]


def _part(value: Any, name: str, rest: str) -> Any:
    try:
        for step in _STEP.finditer(rest):
            name_of = step["attribute"]
            value = value[ast.literal_eval(step["key"])] if name_of is None else getattr(value, name_of)
    except (AttributeError, LookupError, TypeError, ValueError, SyntaxError) as error:
        raise ConfigurationError(f"{name[:40]!r} has no value: {type(error).__name__}.") from None
    return value


def edit_function(args: MagicArguments) -> Edit | None:
    if args.edit is not None and args.edit_json is not None:
        raise ConfigurationError("Give --edit or --edit-json, not both.")
    name = args.edit if args.edit is not None else args.edit_json
    if name is None:
        return None
    if not callable(args.variables.get(name)):
        given = "message" if args.edit is not None else "body"
        raise ConfigurationError(
            f"There is no function {name[:40]!r}: define one first, such as def repair({given}), and give its name."
        )
    function = args.variables[name]
    return function if args.edit is not None else edit_json(function)


# ---------------------------------------------------------------- the options with which magics choose messages

MESSAGES: Final = option(
    "--messages NAME",
    "sequence numbers such as 7,12-15, or a variable with messages, sequence numbers, a frame or a group",
)
CAUSE_OPTION: Final = option("--cause FINGERPRINT", "only messages of this group of %%sb_groups")
CHOOSING: Final = (WHERE, COUNT, STATE, FROM, UP_TO, MESSAGES, CAUSE_OPTION)
_NUMBERS: Final = re.compile(r"[0-9]{1,19}+(?:-[0-9]{1,19}+)?+(?:,[0-9]{1,19}+(?:-[0-9]{1,19}+)?+)*+")
_MOST_NUMBERS: Final = 1_000_000


def named(args: MagicArguments, address: EntityAddress) -> Choice | None:
    if args.messages is None:
        return None
    is_typed = _NUMBERS.fullmatch(args.messages)
    return _numbers(args.messages) if is_typed else chosen(variable(args, args.messages), address)


def selected(entity: Entity, args: MagicArguments) -> Choice:
    """Return the messages that ``--messages``, or the other options of ``CHOOSING`` together, select."""
    if args.messages is not None:
        others = (args.where, args.count, args.cause, args.state, args.to_sequence_number)
        if any(each is not None for each in others) or args.from_sequence_number != 1:
            raise ConfigurationError(
                "--messages names the messages: leave --where, --cause, --state, --from, -t and -n out."
            )
        return named(args, entity.address)
    found = peeked(entity, args, args.count if args.cause is None else None, state=args.state or "active")
    return found if args.cause is None else _of_cause(found, args.cause)[: args.count]


def peeked(entity: Entity, args: MagicArguments, most: int | None, **options: Any) -> Messages:
    start, end = args.from_sequence_number, args.to_sequence_number
    return entity.peek(most, where=args.where, from_sequence_number=start, to_sequence_number=end, **options)


def _of_cause(found: Messages, fingerprint: str) -> Sequence[ReceivedMessage]:
    # By every trait, too, so that the fingerprints of --by are known.
    wanted: list[Sequence[Trait]] = [CAUSE, TRAITS, *((trait,) for trait in TRAITS)]
    for by in wanted:
        for group in found.groups(by):
            if group.fingerprint == fingerprint:
                return group.messages
    raise ConfigurationError(
        f"There is no group with the fingerprint {fingerprint[:40]!r} among these messages: %sb_groups shows them."
    )


def _numbers(text: str) -> list[int]:
    """Return sequence numbers that are written as 7,12-15."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise ConfigurationError(f"The range {part} runs backwards: write the lower sequence number first.")
        if len(numbers) + len(span) > _MOST_NUMBERS:
            raise ConfigurationError(f"{text[:40]!r} are more than {_MOST_NUMBERS:,} numbers: use --from and -t.")
        numbers += span
    return numbers


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
    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(tables.preview_html(plan.preview()) for plan in self)


@command(
    argument("entity", nargs="?", metavar="ENTITY", help="show the fates of resubmits from this entity"),
    option("--fates", "show the fate of each resubmit: consumed, waiting, or back"),
    option("-n, --count N", f"look up the last N resubmits (default {MOST_RESUBMITS})"),
    _OTHER,
    option(
        "--note TEXT",
        "write a note on a cause: its fingerprint from %%sb_groups, and a text. '' removes it",
        nargs="+",
    ),
    INTO,
)
def sb_journal(current: Current, args: MagicArguments) -> Remembered | History | None:
    """Show the records of this machine: unfinished work, removed messages, the fates of resubmits, and notes.

    Without options it shows unfinished work, and the magic that continues it. It locks nothing.

    Example::

        %sb_journal
        %sb_journal orders/$dlq
        %sb_journal --fates -n 100 --other other
        %sb_journal --note 4a7d1ed41474 price list was empty, see INC-4711
    """
    namespace = current.namespace
    if args.note is not None:
        fingerprint, *text = args.note
        if text:
            namespace.note(fingerprint, " ".join(text))
        say(namespace.notes().get(fingerprint, f"There is no note on {fingerprint[:40]}."))
        return None
    if args.fates or args.entity or args.count or args.other:
        most = args.count or MOST_RESUBMITS
        return namespace.history(args.entity, max_messages=most, others=_others(args))
    return namespace.remembered()


@command(
    MAYBE_ENTITY,
    option("--resend-unknown", "resend clones that an interrupted run may have sent"),
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
    option("--since DURATION", "only messages removed since 2026-01-31, or in the last 2h", type=str),
    option("--to DESTINATION", "queue or topic to send to (default: the entity of each message)"),
    option("--include-unknown", "also send messages that may not have been removed"),
    option("--include-resubmitted", "also send originals of resubmits, as second copies"),
    option("--new-ids", "give the messages new message ids", default=None),
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
    found = [variable(args, name) for name in args.other or ()]
    if not all(isinstance(each, Namespace) for each in found):
        raise ConfigurationError("--other names a variable with a namespace, such as other = connect(…).")
    return found


def _another_way(report: Report | None) -> str:
    verbs = {outcome.verb for outcome in report or ()}
    said = _STILL_THERE.get(verbs.pop()) if len(verbs) == 1 else None
    return said.format(report[0].entity) if report and said else ""


def _of(args: MagicArguments) -> tuple[Report | None, str | None]:
    if args.what is None:
        if args.since is not None:
            return None, None
        if LAST_REPORT not in args.variables:
            raise ConfigurationError("Choose what to undo: the variable of a report, or an entity, or --since 2h.")
        return args.variables[LAST_REPORT], None
    if not isinstance(args.what, Quoted) and isinstance(args.variables.get(args.what), Report):
        return args.variables[args.what], None
    return None, args.what
