"""``%sb_send``, ``%sb_resubmit`` and ``%sb_push``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument

from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.magics.arguments import (
    COUNT,
    DESTINATION,
    DRY_RUN,
    ENTITY,
    INTO,
    MAX_IN_FLIGHT,
    RATE,
    WHERE,
    YES,
    Given,
    Quoted,
    command,
)
from sbnotebook.magics.display import Applicable, carry_out
from sbnotebook.model import Message, ReceivedMessage, Report
from sbnotebook.settlement.plan import Edit

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.current import Current

__all__ = ["Sending"]

_TRIED: Final = 5
"""Messages on which an edit is tried before the plan is shown."""


@magics_class
class Sending(Magics):
    """Magics that send messages."""

    def __init__(self, shell: InteractiveShell, current: Current) -> None:
        super().__init__(shell)
        self._current = current

    @line_cell_magic
    @command(
        DESTINATION,
        argument("what", nargs="?", metavar="NAME", help="a variable, or a text in quotes; for %%%%sb_send the cell"),
        argument("--subject", metavar="TEXT", help="of a text: what the message is about"),
        argument("--message-id", metavar="TEXT", help="of a text: the message's identifier"),
        argument("--content-type", metavar="TEXT", help="of a text: by default application/json where it is JSON"),
        DRY_RUN,
        YES,
        INTO,
    )
    def sb_send(self, given: Given) -> Applicable | Report:
        """Send a text, or a variable: a message, a text, a dictionary, or a list of these.

        Example::

            %sb_send orders "hello" --subject greeting
            %sb_send orders messages

            %%sb_send orders --subject UA
            {"carrier": "UA", "flight": 1545}
        """
        entity = self._current.namespace.entity(given.entity)
        return self._carry_out(entity.plan_send(_what_to_send(given)), given)

    @line_magic
    @command(
        ENTITY,
        WHERE,
        COUNT,
        argument("-t", "--to", metavar="DESTINATION", help="a queue or a topic; by default where the messages were"),
        argument("--delay", metavar="DURATION", help="how much later, such as 90s, 5m or 1h30m"),
        argument("-e", "--edit", metavar="FUNCTION", help="gives for each message the message that is sent"),
        argument("--max-resubmits", metavar="N", type=int, help="skip messages that were resubmitted this often"),
        argument(
            "--resend-unknown", action="store_true", help="send again what a run that was cut off may have sent already"
        ),
        MAX_IN_FLIGHT,
        RATE,
        DRY_RUN,
        YES,
        INTO,
    )
    def sb_resubmit(self, given: Given) -> Applicable | Report:
        """Send clones of messages that stand in an entity, and complete the originals.

        Example::

            def fix(message):
                return message.with_changes(body=message.body.replace(b"null", b"0"))

            %sb_resubmit orders/$dlq --where "dead_letter_reason = 'Invalid'" --edit fix --dry-run
        """
        entity = self._current.namespace.entity(given.entity)
        looked_at = given.count if given.where is None else None
        messages = entity.peek(looked_at, where=given.where, state="active")[: given.count]
        edit = _edit(given)
        if edit is not None:
            for message in messages[:_TRIED]:
                edit(message)  # one that fails does so before anything is shown or done
        plan = entity.resubmit(
            messages,
            to=given.to,
            delay=given.delay,
            edit=edit,
            max_resubmits=given.max_resubmits,
            resend_unknown=given.resend_unknown,
        )
        return self._carry_out(plan, given)

    @line_magic
    @command(
        argument("frame", metavar="DATAFRAME", help="the name of a pandas, Arrow or Spark frame"),
        DESTINATION,
        MAX_IN_FLIGHT,
        RATE,
        DRY_RUN,
        YES,
        INTO,
    )
    def sb_push(self, given: Given) -> Applicable | Report:
        """Send the rows of a frame as messages.

        Columns named like message columns are these; of the others a JSON body is made where there is no body.
        A Spark frame is collected first; large ones are better written by Spark itself, with
        ``frame.write.format("servicebus")``.

        Example::

            summary = frame.groupby("carrier", as_index=False).size()
            %sb_push summary results --rate 200
        """
        entity = self._current.namespace.entity(given.entity)
        frame = _variable(given, given.frame)
        if type(frame).__module__.startswith("pyspark."):
            frame = frame.toArrow()
        return self._carry_out(entity.plan_send(frame), given)

    def _carry_out(self, plan: Applicable, given: Given) -> Applicable | Report:
        return carry_out(plan, given, asks=not self._current.namespace.is_emulator)


def _what_to_send(given: Given) -> Any:
    if given.cell is not None:
        if given.what is not None:
            raise ConfigurationError("The cell is the message: leave the text or variable on the line out.")
        return _text_message(given.cell.removesuffix("\n"), given)
    if given.what is None:
        raise ConfigurationError("Say what to send: a text in quotes, a variable, or %%sb_send with the text below.")
    if isinstance(given.what, Quoted) or not given.what.isidentifier():
        return _text_message(given.what, given)
    if given.subject or given.message_id or given.content_type:
        raise ConfigurationError("--subject, --message-id and --content-type are for a text, not a variable.")
    return _variable(given, given.what)


def _text_message(text: str, given: Given) -> Message:
    return Message(
        body=text.encode(),
        subject=given.subject,
        message_id=given.message_id,
        content_type=given.content_type or ("application/json" if _is_json(text) else None),
    )


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except ValueError:
        return False


def _variable(given: Given, name: str) -> Any:
    if name not in given.variables:
        raise ConfigurationError(f"There is no variable {name[:40]!r}; a text to send stands in quotes.")
    return given.variables[name]


def _edit(given: Given) -> Edit | None:
    if given.edit is None:
        return None
    function = given.variables.get(given.edit)
    if not callable(function):
        raise ConfigurationError(f"There is no function {given.edit[:40]!r}: define it first.")

    def edit(message: ReceivedMessage) -> Message:
        edited = function(message)
        if not isinstance(edited, Message):
            raise DecisionError(
                f"{given.edit} returned {type(edited).__name__}: it must return the message to send, "
                "such as message.with_changes(…)."
            )
        return edited

    return edit
