"""``%sb_send``."""

from __future__ import annotations

import ast
import json
from typing import Any, Final

from IPython.core.magic_arguments import argument

from sbnotebook.client import Plan
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import ACTING, DESTINATION, MagicArguments, Quoted, option
from sbnotebook.magics.current import Current
from sbnotebook.magics.plan_magics import command, variable
from sbnotebook.model import Message
from sbnotebook.model.schema import message_from_row

_WHAT: Final = (
    argument("what", nargs="?", metavar="NAME", help="a variable, or a text in quotes; with two %% signs the cell"),
    option("--subject TEXT", "of a text: its subject"),
    option("--message-id TEXT", "of a text: its message id"),
    option("--content-type TEXT", "of a text: its content type (default application/json for JSON)"),
    option("--session-id SESSION", "of a text: its session"),
    option(
        "--property NAME=VALUE",
        "of a text: an application property; 2, 0.5 and true have their own types. Repeatable",
        action="append",
    ),
    option("--lines", "send each line of the text or cell as a message"),
)
_OF_TEXTS: Final = ("subject", "message_id", "content_type", "session_id", "property", "lines")


@command(
    DESTINATION,
    *_WHAT,
    option("--delay DURATION", "make the messages active later, such as 90s, 5m or 1h30m"),
    option("--at TIME", "make them active then, such as 2026-11-22T08:00 in this machine's time"),
    *ACTING,
    takes_cell=True,
)
def sb_send(current: Current, args: MagicArguments) -> Plan:
    """Send a text, a variable or the cell, at once or later.

    The variable holds a message, a text, a dictionary, a list of these, or a pandas, Arrow or Spark frame. Columns
    of a frame with the names of message columns are taken as such; the others become a JSON body where there is no
    body. A Spark frame is collected first; Spark itself writes large ones faster, with
    ``frame.write.format("servicebus")``. %sb_peek ENTITY --state scheduled shows messages that become active later.

    Example::

        %sb_send orders "hello" --subject greeting --property carrier=UA --property stops=2
        %sb_send orders messages
        %sb_send orders "wake up" --delay 1h

        summary = frame.groupby("carrier", as_index=False).size()
        %sb_send results summary --rate 200

        %%sb_send orders --subject UA
        {"carrier": "UA", "flight": 1545}

        %%sb_send orders --lines --at 2050-01-01T08:00
        {"carrier": "UA", "flight": 1545}
        {"carrier": "AA", "flight": 1141}
    """
    entity = current.namespace.entity(args.entity)
    return entity.plan_send(_what_to_send(args), at=args.at, delay=args.delay)


def _what_to_send(args: MagicArguments) -> Any:
    # The cell, a text on the line, or a variable: one of them.
    if args.cell is not None:
        if args.what is not None:
            raise ConfigurationError("The cell is the message: leave the text or variable on the line out.")
        return _texts(args.cell.removesuffix("\n"), args)
    if args.what is None:
        raise ConfigurationError(
            "Give something to send: a text in quotes, a variable, or %%sb_send with the text below."
        )
    if isinstance(args.what, Quoted) or not args.what.isidentifier():
        _refuse_expression(args.what)
        return _texts(args.what, args)
    given = [f"--{name.replace('_', '-')}" for name in _OF_TEXTS if getattr(args, name)]
    if given:
        raise ConfigurationError(f"{' and '.join(given)} goes with a text, not with a variable.")
    return variable(args, args.what)


def _refuse_expression(what: str) -> None:
    """Refuse an expression such as ``list(messages)``, which is not meant as the text to send."""
    try:
        meant = None if isinstance(what, Quoted) else ast.parse(what, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return
    if isinstance(meant, ast.Call | ast.Attribute | ast.Subscript | ast.ListComp):
        raise ConfigurationError(
            f"{what[:40]!r} is an expression: give its value a name and send that, or put a text to send in quotes."
        )


def _texts(text: str, args: MagicArguments) -> Message | list[Message]:
    if not args.lines:
        return _message(text, args)
    if args.message_id is not None:
        raise ConfigurationError("--message-id is for one message: several must not have the same.")
    return [_message(line, args) for line in text.splitlines() if line.strip()]


def _message(text: str, args: MagicArguments) -> Message:
    return message_from_row(
        {
            "body_text": text,
            "subject": args.subject,
            "message_id": args.message_id,
            "content_type": args.content_type or ("application/json" if _is_json(text) else None),
            "session_id": args.session_id,
        }
    ).with_changes(application_properties=dict(map(_property, args.property or ())))


def _property(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigurationError(f"--property takes NAME=VALUE, such as carrier=UA, not {text[:40]!r}.")
    try:
        typed = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    return name, typed if isinstance(typed, (bool, int, float, str)) else value


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False
