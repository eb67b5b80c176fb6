"""Parse the line of a magic: show its help on request, and answer a mistake with a sentence and the near match."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

from IPython.core.error import UsageError

from sbnotebook.errors import near_match
from sbnotebook.magics.arguments import MagicArguments, Quoted, expanded, split_words
from sbnotebook.magics.current import say
from sbnotebook.magics.names import REMOVALS, about_name
from sbnotebook.model import EntityAddress

_HELP: Final = frozenset({"-h", "--help"})
_REQUIRED: Final = "the following arguments are required: "
_CHOICE: Final = "invalid choice: "
_NOT_FOUND: Final = re.compile(r"magic(?: function)? `%{1,2}((?:sb|servicebus|service_bus|azure)\w*)` not found")
_MODE: Final = 'data source "servicebus" cannot be written in'
_HOW_TO_WRITE: Final = 'sbnotebook only adds messages: df.write.format("servicebus").mode("append").'
_SHOWN: Final = 60
_MEANT: Final = {
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
_WORDS_OF_OTHERS: Final = {word: option for option, words in _MEANT.items() for word in words}
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
    if any(word in _HELP and not isinstance(word, Quoted) for word in words):
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
    """Parse words, and return those that the magic does not know."""
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
    near = meant if meant in options else _near(option, options)
    if near is not None:
        return f"%{parser.prog} has no option {option[:_SHOWN]}; did you mean {near}?"
    there = ", ".join(action[0] for action in spellings if action)
    return f"%{parser.prog} has no option {option[:_SHOWN]}; there are {there}."


def _near(name: str, known: list[str]) -> str | None:
    return None if name.lower().lstrip("-").startswith(REMOVALS) else near_match(name, known)


def add_advice(shell: Any) -> None:
    """Have a shell add advice to errors of IPython and Spark: the magic for a misspelt name, and how to write."""
    show, show_frames = shell.show_usage_error, shell._showtraceback  # noqa: SLF001 (subclasses may override it)

    def show_usage_error(error: BaseException) -> None:
        found = _NOT_FOUND.search(str(error))
        show(UsageError(about_name(found[1])) if found else error)

    def show_traceback(kind: Any, error: Any, lines: list[str]) -> None:
        # Spark refuses other modes before it asks sbnotebook, and suggests one that would replace the messages.
        is_about_mode = kind.__name__ == "AnalysisException" and _MODE in str(error)
        show_frames(kind, error, [*lines, _HOW_TO_WRITE] if is_about_mode else lines)

    shell.show_usage_error, shell._showtraceback = show_usage_error, show_traceback  # noqa: SLF001
