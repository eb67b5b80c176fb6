"""``%sb_send``, ``%sb_schedule`` and ``%sb_push``."""

from __future__ import annotations

import ast
import json
from typing import Any, Final

from IPython.core.magic import line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument

from sbnotebook.analysis import query
from sbnotebook.client import Messages, Plan
from sbnotebook.client.choosing import chosen_of
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import (
    DESTINATION,
    DRY_RUN,
    INTO,
    MAX_IN_FLIGHT,
    RATE,
    WHERE,
    YES,
    MagicArguments,
    Quoted,
)
from sbnotebook.magics.choosing import MESSAGES, named
from sbnotebook.magics.plan_magics import PlanMagics, command, variable
from sbnotebook.model import Message, PeekedMessage
from sbnotebook.model.schema import message_from_row

__all__ = ["SendMagics"]

_ACTING: Final = (MAX_IN_FLIGHT, RATE, DRY_RUN, YES, INTO)
_WHAT: Final = (
    argument("what", nargs="?", metavar="NAME", help="a variable, or a text in quotes; with two %% signs the cell"),
    argument("--subject", metavar="TEXT", help="of a text: what the message is about"),
    argument("--message-id", metavar="TEXT", help="of a text: the message's identifier"),
    argument("--content-type", metavar="TEXT", help="of a text: by default application/json where it is JSON"),
    argument("--session-id", metavar="SESSION", help="of a text: the session that the message belongs to"),
    argument("--lines", action="store_true", help="each line of the text or of the cell is a message of its own"),
)


@magics_class
class SendMagics(PlanMagics):
    """Magics that send messages."""

    @line_cell_magic
    @command(DESTINATION, *_WHAT, *_ACTING)
    def sb_send(self, args: MagicArguments) -> Plan:
        """Send a text, or a variable: a message, a text, a dictionary, or a list of these.

        Example::

            %sb_send orders "hello" --subject greeting
            %sb_send orders messages

            %%sb_send orders --subject UA
            {"carrier": "UA", "flight": 1545}

            %%sb_send orders --lines
            {"carrier": "UA", "flight": 1545}
            {"carrier": "AA", "flight": 1141}
        """
        return self.current.namespace.entity(args.entity).plan_send(_what_to_send(args))

    @line_cell_magic
    @command(
        DESTINATION,
        *_WHAT,
        argument("--delay", metavar="DURATION", help="how much later than now, such as 90s, 5m or 1h30m"),
        argument("--at", metavar="TIME", help="when, such as 2026-11-22T08:00 in this machine's time"),
        argument("--cancel", action="store_true", help="cancel scheduled messages; with --where only those that match"),
        WHERE,
        MESSAGES,
        *_ACTING,
    )
    def sb_schedule(self, args: MagicArguments) -> Messages | Plan:
        """Send messages that become active later; with nothing to send, show the scheduled messages, or cancel them.

        Example::

            %sb_schedule orders "wake up" --delay 1h
            %sb_schedule orders
            %sb_schedule orders --cancel --where "subject = 'greeting'"

            %%sb_schedule orders --at 2050-01-01T08:00
            {"carrier": "UA"}
        """
        entity = self.current.namespace.entity(args.entity)
        # With a message it sends for later; without one it shows or cancels scheduled messages.
        is_to_send = args.what is not None or args.cell is not None
        if is_to_send:
            if args.cancel or args.where or args.messages:
                raise ConfigurationError(
                    "--cancel and --where apply to scheduled messages: do not give a message to send."
                )
            if args.at is None and args.delay is None:
                raise ConfigurationError("Say when: --delay 5m or --at 2026-11-22T08:00.")
            return entity.plan_send(_what_to_send(args), at=args.at, delay=args.delay)
        if not args.cancel:
            if args.messages:
                raise ConfigurationError(
                    "--messages goes with --cancel; --where chooses the scheduled messages to show."
                )
            return entity.scheduled(where=args.where)
        meant = named(args, entity.address)
        if meant is None:
            meant = entity.scheduled(where=args.where)
        elif args.where is not None:
            meant = query.where(chosen_of(entity.scheduled(), meant, entity.address, PeekedMessage), args.where)
        return entity.cancel_scheduled(meant)

    @line_magic
    @command(
        argument("frame", metavar="DATAFRAME", help="the name of a pandas, Arrow or Spark frame"),
        DESTINATION,
        *_ACTING,
    )
    def sb_push(self, args: MagicArguments) -> Plan:
        """Send the rows of a frame as messages.

        Columns with the names of message columns are taken as such; the others become a JSON body where there is no
        body. A Spark frame is collected first; large ones are better written by Spark itself, with
        ``frame.write.format("servicebus")``.

        Example::

            summary = frame.groupby("carrier", as_index=False).size()
            %sb_push summary results --rate 200
        """
        entity = self.current.namespace.entity(args.entity)
        return entity.plan_send(variable(args, args.frame))


def _what_to_send(args: MagicArguments) -> Any:
    # The cell, a text on the line, or a variable: one of them.
    if args.cell is not None:
        if args.what is not None:
            raise ConfigurationError("The cell is the message: leave the text or variable on the line out.")
        return _texts(args.cell.removesuffix("\n"), args)
    if args.what is None:
        raise ConfigurationError("Say what to send: a text in quotes, a variable, or %%sb_send with the text below.")
    if isinstance(args.what, Quoted) or not args.what.isidentifier():
        _refuse_expression(args.what)
        return _texts(args.what, args)
    if args.lines or args.subject or args.message_id or args.content_type or args.session_id:
        raise ConfigurationError(
            "--subject, --message-id, --content-type, --session-id and --lines are for a text, not a variable."
        )
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
    )


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False
