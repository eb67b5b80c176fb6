"""The names of the magics, their options, and errors of both in one line, with the name that is near."""

from __future__ import annotations

import argparse
import keyword
import math
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument
from IPython.utils.text import DollarFormatter

from sbnotebook.analysis.tables import again
from sbnotebook.client.targets import duration
from sbnotebook.errors import ConfigurationError, SbNotebookError, near_match
from sbnotebook.magics.current import say
from sbnotebook.model import EntityAddress, MessageState, OutcomeStatus, Report
from sbnotebook.model.connection_strings import Hidden, hidden, read_connection_string, scrub
from sbnotebook.settlement import explained

TASKS: Final = {
    "start": ("connect", "create", "entities"),
    "look": ("peek", "browse", "groups", "triage", "dlq", "find", "sql", "diff", "monitor"),
    "hold and settle": ("lock", "renew", "complete", "abandon", "dead_letter", "defer", "release"),
    "choose and settle": ("pick", "deferred", "purge"),
    "send": ("send", "resubmit"),
    "afterwards": ("journal", "resume", "undo"),
    "elsewhere": ("spark", "sample"),
    "assistant": ("assistant", "confirm"),
}
"""The verbs of all magics, by task."""
VERBS: Final = tuple(verb for verbs in TASKS.values() for verb in verbs)

_MEANT: Final = {
    "%sb": ("help", "servicebus", "service_bus", "azure"),
    "%sb_connect": ("login", "use"),
    "%sb_entities": (
        "count",
        "counts",
        "describe",
        "info",
        "list",
        "queue",
        "queues",
        "rules",
        "subscription",
        "topic",
        "topics",
    ),
    "%sb_entities ENTITY --sessions": ("sessions",),
    "%sb_peek": ("read", "show", "get", "fetch", "messages"),
    "%sb_peek ENTITY --to FILE": ("export", "download", "save"),
    "%sb_groups": ("causes",),
    "%sb_assistant": ("mcp", "chat"),
    "%sb_find": ("search",),
    "%sb_find --message-id ID": ("trace",),
    "%sb_sql": ("query",),
    "%sb_dlq --to FILE": ("report",),
    "%sb_monitor": ("watch", "stats", "status", "metrics", "dashboard"),
    "%sb_lock": ("receive", "locks", "consume"),
    "%sb_lock ENTITY --session ID": ("session",),
    "%sb_release": ("unlock",),
    "%sb_abandon": ("nack",),
    "%sb_dead_letter": ("deadletter", "reject"),
    "%sb_complete": ("settle",),
    "%sb_resubmit": ("move", "forward", "redrive", "replay", "requeue", "retry"),
    "%sb_send DESTINATION NAME": ("push",),
    "%sb_send": ("publish", "import"),
    "%sb_send DESTINATION TEXT --delay 5m": ("schedule",),
    "%sb_peek ENTITY --state scheduled": ("scheduled",),
    "%sb_journal --fates": ("history",),
    "%sb_journal --note FINGERPRINT TEXT": ("note",),
    "%sb_journal": ("notes",),
    "%sb_undo": ("restore",),
    "%sb_sample": ("copy",),
    "%sb_spark": ("df", "load", "stream"),
}
OTHER_NAMES: Final = {name: magic for magic, names in _MEANT.items() for name in names}
"""Names that sbnotebook had, that other tools have, or that new users try. None leads to a removal."""

REMOVALS: Final = ("delete", "remove", "clear", "drop", "empty", "erase", "destroy", "wipe", "force")
"""Beginnings of names that suggest nothing: a similar name may be another removal than you mean."""
_SHOWN: Final = 60


def about_name(name: str) -> str:
    verb = name.lower().removeprefix("sb").lstrip("_ ").replace("-", "_")
    if verb in VERBS:  # as a cell
        return f"%%{name} takes no cell: write it on one line, %sb_{verb}."
    near = OTHER_NAMES.get(verb)
    if near is None and not verb.startswith(REMOVALS) and (found := near_match(verb, VERBS)):
        near = f"%sb_{found}"
    return f"There is no magic %{name[:_SHOWN]}{f'; did you mean {near}?' if near else '.'} %sb shows all magics."


WORD: Final = re.compile(
    r"""(--[\w-]+=)?(?:"(?P<double>.*?)"(?=\s|$)|'(?P<single>.*?)'(?=\s|$)|["'](?P<open>.*))|\S+""", re.DOTALL
)
"""A word of a line; the content of quotes is a group of its own, and what follows a quotation mark without its end."""
_HIDDEN: Final = "\0"
LAST_REPORT: Final = "sb_report"
"""The user's variable with the report of the last magic that sent or settled, also when it was interrupted."""


class Quoted(str):
    """A word in quotes: always a text, never the name of a variable."""

    __slots__ = ()


class MagicArguments(argparse.Namespace):
    def __init__(self, cell: str | None, variables: Mapping[str, Any]) -> None:
        super().__init__()
        self.cell = cell
        self.variables = variables


def split_words(line: str) -> list[str]:
    """Split a line at spaces; a text in quotes is one word, without the quotes.

    Quotes inside of a word are left alone, so that ``--where subject='UA'`` and
    ``--where "subject = 'UA'"`` both mean what they say.
    """
    words: list[str] = []
    for match in WORD.finditer(line):
        option, double, single = match[1], match["double"], match["single"]
        quoted = double if double is not None else single
        if match["open"] is not None:
            raise UsageError(f"The quotation mark before {match['open'][:29]!r} is not closed.")
        if quoted is None:
            words.append(match[0])
        else:
            words.append(f"{option}{quoted}" if option else Quoted(quoted))
    return words


def expanded(word: str, variables: Mapping[str, Any]) -> str:
    """Replace ``{expression}`` and ``$variable`` in a word by their values, as IPython does it.

    The ``/$`` of an address such as ``orders/$dlq`` is not a variable. An expression that fails stays unchanged.
    """
    if "{" not in word and "$" not in word:
        return word
    try:
        text = DollarFormatter().vformat(word.replace("/$", _HIDDEN), [], dict(variables)).replace(_HIDDEN, "/$")
    except Exception:  # noqa: BLE001 (an expression that the user wrote may raise anything; IPython does the same)
        return word
    if text.startswith("-") and not word.startswith("-"):
        raise UsageError(f"The value of {word} begins with a dash and looks like an option.")
    return Quoted(text) if text != word else word


def refuse_connection_string(line: str | Hidden) -> None:
    """Refuse a line with a connection string, except the emulator's own: the notebook would keep its key."""
    # In the line as it was typed: the notebook does not keep the value of a variable.
    line = hidden(line)
    if "endpoint=" in line.reveal().lower() and not all(map(_may_be_typed, line.reveal().split())):
        raise ConfigurationError(
            "A connection string typed here would be kept in the notebook: delete it from the cell, and use "
            "%sb_connect --prompt, env:VARIABLE or secret:SCOPE/KEY."
        )


def _may_be_typed(word: str) -> bool:
    """Return whether a word holds no key, or only that of an emulator on this machine."""
    if scrub(word) == word:
        return True
    _, found, rest = word.strip("\"'").lower().partition("endpoint=")
    try:
        return read_connection_string(found + rest).is_local_emulator
    except ConfigurationError:
        return False


# ---------------------------------------------------------------- errors


class InterruptedMagic(KeyboardInterrupt):
    """A magic was interrupted: shown as one line that says how far it was, without a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for it
        return [f"Interrupted: {self}"]


@contextmanager
def in_one_line(shell: Any, args: MagicArguments) -> Generator[None]:
    """Show sbnotebook's own errors, those of the service, and an interrupt in one line each."""
    try:
        yield
    except (SbNotebookError, UsageError) as error:
        raise UsageError(_with_report(shell, error, scrub(str(error)))) from None
    except KeyboardInterrupt as interrupt:
        # Interrupted work always has a report. Without one it had not begun, or had just ended.
        is_known = hasattr(interrupt, "report")
        said = "nothing was sent or settled." if is_known else "look how far it came before you do it once more."
        limit = " Then -n counts anew." if getattr(args, "count", None) else ""
        raise InterruptedMagic(_with_report(shell, interrupt, said, limit)) from None
    except Exception as error:
        said = _with_report(shell, error, f"{type(error).__name__}: {explained(error)}")
        # By name, because only the settlement library imports the SDK.
        names = ("azure.servicebus.", "azure.core.", "azure.identity.")
        if not any(kind.__module__.startswith(names) for kind in type(error).__mro__):
            raise
        raise UsageError(said) from None


def _with_report(shell: Any, error: BaseException, said: str, limit: str = "") -> str:
    report = getattr(error, "report", None)
    if not isinstance(report, Report) or not report:
        return said
    shell.push({LAST_REPORT: report})
    rest = f"{report}. Unconfirmed actions may have happened, skipped ones did not; {LAST_REPORT} has all outcomes."
    if isinstance(error, KeyboardInterrupt):
        advice = {again(each) for each in report.failures if each.status is OutcomeStatus.SKIPPED} - {""}
        return "".join([rest, *sorted(advice), limit if advice else ""])
    if set(report.counts) == {OutcomeStatus.SKIPPED}:
        return f"{said} Nothing was sent or settled; {LAST_REPORT} has all outcomes."
    return f"{said} Until then - {rest}"


# ---------------------------------------------------------------- types


def _name(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a variable's name")
    return text


def count(text: str) -> int:
    """Convert a whole number from 1 on: the type of an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of 1 or more")
    return int(text)


def whole(text: str) -> int:
    """Convert a whole number from 0 on: the type of an argument."""
    return 0 if text == "0" else count(text)


def count_or_all(text: str) -> int:
    """Convert a whole number from 1 on, or the word all, which is 0: the type of an argument."""
    return 0 if text.lower() == "all" else count(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _rate(text: str) -> float:
    number = _float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number above 0")
    return number


def _share(text: str) -> float:
    share = _float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a share such as 2% or 0.02")
    return share


def seconds(text: str) -> float:
    try:
        return duration(text).total_seconds()
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None


_TYPES: Final = {"N": count, "DURATION": seconds}


def option(spelling: str, meaning: str, **more: Any) -> argument:
    """Return the argument of an option, spelt as the help shows it: ``-n, --count N``, or ``--yes`` for a flag.

    Tab completion, and the type where no other is given, go by the word behind the name.
    """
    *names, last = spelling.split(", ")
    name, _, metavar = last.partition(" ")
    if metavar:
        more = {"metavar": metavar, "type": _TYPES.get(metavar)} | more
    elif not more.keys() & {"action", "choices"}:
        more["action"] = "store_true"
    return argument(*names, name, help=meaning, **more)


# ---------------------------------------------------------------- arguments that several magics share

ENTITY: Final = argument("entity", metavar="ENTITY", help="such as orders, orders/$dlq, events/subscriptions/audit")
MAYBE_ENTITY: Final = argument("entity", nargs="?", metavar="ENTITY", help="such as orders/$dlq; all without it")
DESTINATION: Final = argument("entity", metavar="DESTINATION", help="a queue or a topic")
INTO: Final = option("-i, --into NAME", "bind the result to a variable instead of showing it", type=_name)
DECODE: Final = option(
    "--decode DECODER", "decode bodies: a name of sbnotebook.decoder, avro:FILE or protobuf:FILE#MESSAGE"
)
WHERE: Final = option("-w, --where EXPRESSION", "only messages that match: SQL over the message columns and body_json")
COUNT: Final = option("-n, --count N", "maximum number of matching messages")
PEEK_COUNT: Final = option(
    "-n, --count N", "maximum number of messages, or all (default 1000; with --where all that match)", type=count_or_all
)
FROM: Final = option("-f, --from N", "first sequence number", dest="from_sequence_number", default=1)
UP_TO: Final = option("-t, --to-sequence-number N", "last sequence number")
STATE: Final = option("-s, --state", "only messages in this state", choices=[state.value for state in MessageState])
DRY_RUN: Final = option("-d, --dry-run", "show the plan only")
YES: Final = option("-y, --yes", "skip the confirmation (an emulator never asks)")
MAX_IN_FLIGHT: Final = option(
    "-m, --max-in-flight N", "maximum number of operations in progress (default: adapts to the network)"
)
RATE: Final = option("-r, --rate N", "maximum number of messages a second", type=_rate)
ACTING: Final = (MAX_IN_FLIGHT, RATE, DRY_RUN, YES, INTO)
RAMP: Final = option(
    "--ramp SIZES", "resubmit batches of these sizes first, such as 1,5,20,100, each only if the one before is consumed"
)
WATCH: Final = option("--watch DURATION", "maximum time to watch a batch (default 10m)")
STOP_AT: Final = option(
    "--stop-at SHARE",
    "stop when this share of a batch comes back, such as 2%% (default: any message)",
    type=_share,
    default=0.0,
)
REASON: Final = option("--reason TEXT", "dead-letter reason: short, and the same for the same cause")
DESCRIPTION: Final = option("--description TEXT", "dead-letter description: the fault of the message")
TO: Final = option("--to DESTINATION", "queue or topic to send the clones to (default: their own entity)")
DELAY: Final = option("--delay DURATION", "delay until the clones become active, such as 5m or 1h30m")
EDIT: Final = option("-e, --edit FUNCTION", "function that returns the message to send for each message")
EDIT_JSON: Final = option(
    "--edit-json FUNCTION", "function that gets each JSON body as a dict, and changes it or returns another"
)


_REQUIRED: Final = "the following arguments are required: "
_CHOICE: Final = "invalid choice: "
_NOT_FOUND: Final = re.compile(r"magic(?: function)? `%{1,2}((?:sb|servicebus|service_bus|azure)\w*)` not found")
_MEANT_OPTIONS: Final = {
    "--count": ("--limit", "--max", "--max-messages", "--top"),
    "--where": ("--filter", "--query"),
    "--before": ("--older-than",),
    "--ramp": ("--canary",),
    "--stop-at": ("--max-came-back",),
    "--description": ("--error-description",),
    "--to": ("--output", "--file"),
    "--subject": ("--label",),
    "--property": ("--properties",),
    "--dlq": ("--dead-letter", "--dead-letters", "--deadletter", "--deadletters", "--dead-letter-queue"),
}
_WORDS_OF_OTHERS: Final = {word: option for option, words in _MEANT_OPTIONS.items() for word in words}
"""Options of other tools. None leads to a removal, or past a question."""
_OTHER_MAGICS: Final = {"--resubmit": "%sb_resubmit", "--move": "%sb_resubmit"}
"""Options that are magics of their own."""
_HOLDING: Final = {
    "sb_complete": "--complete",
    "sb_abandon": "--abandon",
    "sb_dead_letter": "--dead-letter",
    "sb_defer": "--defer",
    "sb_release": "",
}
"""Magics that settle held messages, and the options of ``%sb_pick`` that do the same."""
_DLQ: Final = "--dlq"
"""Accepted for ``/$dlq`` behind the entity."""


def parsed(parser: argparse.ArgumentParser, line: str, args: MagicArguments) -> bool:
    """Parse the line of a magic, or show the magic's help where the line asks for it."""
    words = [expanded(word, args.variables) for word in split_words(line)]
    if any(word in ("-h", "--help") and not isinstance(word, Quoted) for word in words):
        say(parser.format_help())
        return False
    parser.exit_on_error = False
    parser.allow_abbrev = False  # half an option is a slip, and --com is not --complete
    rest = _rest(parser, words, args)
    if _DLQ in rest and getattr(args, "entity", None):
        address = EntityAddress.parse(args.entity)
        args.entity = str(address if address.sub_queue else address.dead_letter)
        rest.remove(_DLQ)
    if _is_count(parser, args, rest):
        rest = _rest(parser, [*(word for word in words if word is not rest[0]), "-n", rest[0]], args)
    if rest:
        raise UsageError(_about_rest(parser, line, args, rest))
    return True


def _rest(parser: argparse.ArgumentParser, words: list[str], args: MagicArguments) -> list[str]:
    try:
        return parser.parse_known_args(words, args)[1]
    except argparse.ArgumentError as error:
        raise UsageError(_about_value(parser, error)) from None
    except UsageError as error:
        raise UsageError(_about_missing(parser, str(error))) from None


def _is_count(parser: argparse.ArgumentParser, args: MagicArguments, rest: list[str]) -> bool:
    """Return whether one word too much is how many messages are meant: not where it may be a sequence number."""
    options = {option for action in parser._actions for option in action.option_strings}  # noqa: SLF001
    return (
        len(rest) == 1 and rest[0].isdecimal() and "--messages" not in options and getattr(args, "count", rest) is None
    )


def _about_value(parser: argparse.ArgumentParser, error: argparse.ArgumentError) -> str:
    if error.message.startswith(_REQUIRED):  # Python 3.13
        return _about_missing(parser, error.message)
    name = str(error.argument_name).rpartition("/")[2]
    action: Any = next((each for each in parser._actions if name in (*each.option_strings, each.metavar)), None)  # noqa: SLF001
    if "expected" in error.message:
        return f"{name} needs a value: {name} {getattr(action, 'metavar', None) or 'VALUE'}."
    if error.message.startswith(_CHOICE):
        given = error.message.removeprefix(_CHOICE).partition(" (")[0].strip("'\"")[:_SHOWN]
        choices = [str(choice) for choice in action.choices]
        near = near_match(given, choices)
        hint = f"did you mean {near}? There are" if near else "there are"
        example = (
            "" if action.option_strings or near else f" Write {choices[0]} first: %{parser.prog} {choices[0]} {given}."
        )
        return f"{name} has no value {given!r}; {hint} {', '.join(choices)}.{example}"
    return f"{name}: {error.message.rstrip('.')}."


def _about_missing(parser: argparse.ArgumentParser, message: str) -> str:
    if not message.startswith(_REQUIRED):
        return message
    missing = message.removeprefix(_REQUIRED).split(", ")
    text, verb = " and ".join(missing), "are" if len(missing) > 1 else "is"
    required = (str(each.metavar) for each in parser._actions if each.required and not each.option_strings)  # noqa: SLF001
    usage = " ".join([f"%{parser.prog}", *required])
    return f"{text} {verb} missing: write {usage}; %{parser.prog} --help shows an example."


def _about_rest(parser: argparse.ArgumentParser, line: str, args: MagicArguments, rest: list[str]) -> str:
    option = next((word for word in rest if word.startswith("-") and not isinstance(word, Quoted)), None)
    if option is not None and option.lstrip("-")[:1].isalpha():
        return _about_option(parser, option.partition("=")[0], takes_dlq=bool(getattr(args, "entity", None)))
    if getattr(args, "where", None) is not None:
        expression = line.partition("--where" if "--where" in line else "-w")[2].partition(" -")[0].strip(" =")
        quote = "'" if '"' in expression else '"'
        return f"An expression with spaces needs quotes around it: --where {quote}{expression[: 2 * _SHOWN]}{quote}."
    too_much = repr(" ".join(rest)[:_SHOWN])
    if parser.prog in _HOLDING:
        return _about_holding(parser.prog, rest[0])
    if rest[0].isdecimal() and hasattr(args, "messages"):
        number = rest[0][:_SHOWN]
        return f"Write -n {number} for a number of messages, or --messages {number} for a sequence number."
    if hasattr(args, "what"):
        return f"%{parser.prog} does not take {too_much}: put a text to send into quotes, or name its variable."
    return f"%{parser.prog} does not take {too_much}: see %{parser.prog} --help."


def _about_holding(prog: str, word: str) -> str:
    if word.isdecimal():
        return f"Write %{prog} --messages {word[:_SHOWN]} to settle the held message with this number."
    other = f", or %sb_pick {word[:_SHOWN]} {_HOLDING[prog]}" if _HOLDING[prog] else ""
    return f"%{prog} takes no entity: it settles messages that you hold. Run %sb_lock {word[:_SHOWN]} first{other}."


def _about_option(parser: argparse.ArgumentParser, option: str, *, takes_dlq: bool) -> str:
    spellings = [[each for each in action.option_strings if each.startswith("--")] for action in parser._actions]  # noqa: SLF001
    options = [*(each for action in spellings for each in action), *([_DLQ] if takes_dlq else [])]
    if option.lower() in _OTHER_MAGICS:
        return f"%{parser.prog} has no option {option[:_SHOWN]}: use {_OTHER_MAGICS[option.lower()]}."
    meant = _WORDS_OF_OTHERS.get(option.lower())
    near = meant if meant in options else None
    if near is None and not option.lower().lstrip("-").startswith(REMOVALS):
        near = near_match(option, options)
    if near is not None:
        return f"%{parser.prog} has no option {option[:_SHOWN]}; did you mean {near}?"
    there = ", ".join(action[0] for action in spellings if action)
    return f"%{parser.prog} has no option {option[:_SHOWN]}; there are {there}."


def add_advice(shell: Any) -> None:
    """Have a shell add advice to errors of IPython and Spark: the magic for a misspelt name, and how to write."""
    show, show_frames = shell.show_usage_error, shell._showtraceback  # noqa: SLF001 (subclasses may override it)

    def show_usage_error(error: BaseException) -> None:
        found = _NOT_FOUND.search(str(error))
        show(UsageError(about_name(found[1])) if found else error)

    def show_traceback(kind: Any, error: Any, lines: list[str]) -> None:
        # Spark refuses other modes before it asks sbnotebook, and suggests one that would replace the messages.
        if kind.__name__ == "AnalysisException" and 'data source "servicebus" cannot be written in' in str(error):
            lines = [*lines, 'sbnotebook only adds messages: df.write.format("servicebus").mode("append").']
        show_frames(kind, error, lines)

    shell.show_usage_error, shell._showtraceback = show_usage_error, show_traceback  # noqa: SLF001
