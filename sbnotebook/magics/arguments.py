"""Parse the arguments of the magics, and show their errors in one line."""

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
from sbnotebook.client.coercions import duration
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import MessageState, OutcomeStatus, Report
from sbnotebook.model.connection_strings import read_connection_string
from sbnotebook.model.secret_texts import Hidden, hidden, scrub
from sbnotebook.settlement import explained

WORD: Final = re.compile(
    r"""(--[\w-]+=)?(?:"(?P<double>.*?)"(?=\s|$)|'(?P<single>.*?)'(?=\s|$)|["'](?P<open>.*))|\S+""", re.DOTALL
)
"""A word of a line; the content of quotes is a group of its own, and what follows a quotation mark without its end."""
_HIDDEN: Final = "\0"
LAST_REPORT: Final = "sb_report"
"""The user's variable with the report of the last magic that sent or settled, also when it was interrupted."""
_SDK: Final = ("azure.servicebus.", "azure.core.", "azure.identity.")


class Quoted(str):
    """A word in quotes: always a text, never the name of a variable."""

    __slots__ = ()


class MagicArguments(argparse.Namespace):
    """The arguments of a magic: an attribute for each, and these."""

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
        if not _is_of_the_service(error):
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


def _is_of_the_service(error: Exception) -> bool:
    # By name, because only the settlement library imports the SDK.
    return any(kind.__module__.startswith(_SDK) for kind in type(error).__mro__)


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


def _rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number above 0")
    return number


def _share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        share = float(number) / (100 if number != text else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a share such as 2% or 0.02")
    return share


def seconds(text: str) -> float:
    """Convert a duration as users write it to seconds: the type of an argument."""
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
    "share of a batch that stops the others when it comes back, such as 2%% (default: any message)",
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
