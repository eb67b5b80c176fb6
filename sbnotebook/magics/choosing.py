"""``%sb_resubmit``, ``%sb_pick``, ``%sb_deferred`` and ``%sb_purge``: for messages that are chosen where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument

from sbnotebook.client import Entity, Messages
from sbnotebook.client.coercions import duration
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.acting import Acting, Applicable, edit_of, variable
from sbnotebook.magics.arguments import (
    COUNT,
    DELAY,
    DESCRIPTION,
    DRY_RUN,
    EDIT,
    ENTITY,
    INTO,
    MAX_IN_FLIGHT,
    RATE,
    REASON,
    STATE,
    TO,
    WHERE,
    YES,
    Given,
    command,
)
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    ReceivedMessage,
    Report,
    Resubmit,
)

__all__ = ["Choosing"]

_TRIED: Final = 5
"""Messages on which an edit is tried before the plan is shown."""
_ACTING: Final = (MAX_IN_FLIGHT, RATE, DRY_RUN, YES, INTO)
_MESSAGES: Final = argument(
    "--messages", metavar="NAME", help="a variable with the messages, as they were peeked, or their sequence numbers"
)


def _flag(name: str, what: str) -> argument:
    return argument(f"--{name}", action="append_const", dest="decision", const=name, help=what)


_COMPLETE: Final = _flag("complete", "remove them: they are done with")
_ABANDON: Final = _flag("abandon", "raise their delivery counts by one")
_DEADLETTER: Final = _flag("deadletter", "move them to the dead-letter queue")
_DEFER: Final = _flag("defer", "set them aside")
_RESUBMIT: Final = _flag("resubmit", "send clones of them, and complete them")


@magics_class
class Choosing(Acting):
    """Magics that act on messages which are not locked yet."""

    @line_magic
    @command(
        ENTITY,
        WHERE,
        COUNT,
        _MESSAGES,
        TO,
        DELAY,
        EDIT,
        argument("--max-resubmits", metavar="N", type=int, help="skip messages that were resubmitted this often"),
        argument(
            "--resend-unknown", action="store_true", help="send again what a run that was cut off may have sent already"
        ),
        *_ACTING,
    )
    def sb_resubmit(self, given: Given) -> Applicable | Report:
        """Send clones of messages that stand in an entity, and complete the originals.

        Example::

            def fix(message):
                return message.with_changes(body=message.body.replace(b"null", b"0"))

            %sb_resubmit orders/$dlq --where "dead_letter_reason = 'Invalid'" --edit fix --dry-run
        """
        entity = self.namespace.entity(given.entity)
        messages = [each for each in _chosen(entity, given) if isinstance(each, ReceivedMessage)]
        edit = edit_of(given)
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
        return self.carry_out(plan, given)

    @line_magic
    @command(
        ENTITY,
        WHERE,
        COUNT,
        _MESSAGES,
        _COMPLETE,
        _ABANDON,
        _DEADLETTER,
        _DEFER,
        _RESUBMIT,
        REASON,
        DESCRIPTION,
        TO,
        DELAY,
        EDIT,
        *_ACTING,
    )
    def sb_pick(self, given: Given) -> Applicable | Report:
        """Settle, defer or resubmit chosen messages anywhere in an entity, and no others.

        The messages before them are locked meanwhile and then released, which leaves their delivery counts alone.

        Example::

            %sb_pick orders --where "subject = 'duplicate'" --complete --dry-run
            %sb_pick orders --where "body_json->>'$.carrier' = 'UA'" --deadletter --reason Cancelled
        """
        decision = _decision(given)
        if decision is None:
            raise ConfigurationError("Say what to do: --complete, --deadletter, --defer, --resubmit or --abandon.")
        if given.where is None and given.count is None and given.messages is None:
            raise ConfigurationError("Say which messages: --where, -n or --messages.")
        entity = self.namespace.entity(given.entity)
        return self.carry_out(entity.pick(_chosen(entity, given), decision, edit=edit_of(given)), given)

    @line_magic
    @command(ENTITY, WHERE, _COMPLETE, _ABANDON, _DEADLETTER, _RESUBMIT, REASON, DESCRIPTION, TO, DELAY, EDIT, *_ACTING)
    def sb_deferred(self, given: Given) -> Messages | Applicable | Report:
        """Show the messages that are deferred in an entity; with a decision, settle them.

        The whole entity is looked at, and compared with the journal: what stands deferred there and is not in the
        journal is an orphan, which somebody else has deferred.

        Example::

            %sb_deferred orders
            %sb_deferred orders --where "subject = 'later'" --complete
        """
        decision = _decision(given)
        entity = self.namespace.entity(given.entity)
        deferred = entity.deferred()
        if decision is None:
            return deferred.where(given.where) if given.where else deferred
        if isinstance(decision, Resubmit):
            chosen = deferred.where(given.where)
            plan = entity.resubmit(chosen, to=given.to, delay=given.delay, edit=edit_of(given))
        else:
            plan = deferred.plan(decision, where=given.where)
        return self.carry_out(plan, given)

    @line_magic
    @command(
        ENTITY,
        WHERE,
        STATE,
        argument("--before", metavar="DURATION", help="only what was enqueued longer ago, such as 2d"),
        argument("--to-sequence-number", metavar="N", type=int, help="only up to this number, included"),
        argument("--no-archive", action="store_true", help="keep no copy: %%sb_undo cannot send them back"),
        *_ACTING,
    )
    def sb_purge(self, given: Given) -> Applicable | Report:
        """Remove the messages that stand in an entity now; what comes later stays.

        They are kept on this machine for a time, and %sb_undo sends them back.

        Example::

            %sb_purge orders/$dlq --before 30d --dry-run
            %sb_purge orders --where "subject = 'test'"
        """
        plan = self.namespace.entity(given.entity).purge(
            where=given.where,
            before=given.before,
            to_sequence_number=given.to_sequence_number,
            state=given.state,
            archived=not given.no_archive,
        )
        return self.carry_out(plan, given)


def _chosen(entity: Entity, given: Given) -> list[ReceivedMessage | int]:
    """The messages that ``--messages``, or ``--where`` and ``-n``, mean."""
    if given.messages is not None:
        if given.where is not None or given.count is not None:
            raise ConfigurationError("--messages says which ones: leave --where and -n out.")
        found = variable(given, given.messages)
        return [found] if isinstance(found, (ReceivedMessage, int)) else _listed(found, given.messages)
    looked_at = given.count if given.where is None else None
    return list(entity.peek(looked_at, where=given.where, state="active")[: given.count])


def _listed(found: object, name: str) -> list[ReceivedMessage | int]:
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes)):
        return list(found)
    raise ConfigurationError(f"The variable {name} holds no messages, and no sequence numbers.")


def _decision(given: Given) -> Decision | None:
    """What the options say is to be done; None when they do not."""
    wanted: list[str] = given.decision or []
    if len(wanted) > 1:
        raise ConfigurationError(f"Give one of {' and '.join(f'--{name}' for name in wanted)}.")
    verb = wanted[0] if wanted else ""
    if verb != "deadletter" and (given.reason or given.description):
        raise ConfigurationError("--reason and --description go with --deadletter.")
    if verb != "resubmit" and (given.to or given.delay or given.edit):
        raise ConfigurationError("--to, --delay and --edit go with --resubmit.")
    return _DECISIONS[verb](given) if verb else None


def _resubmit(given: Given) -> Resubmit:
    to = EntityAddress.parse(given.to) if given.to is not None else None
    return Resubmit(to=to, delay=duration(given.delay) if given.delay is not None else None)


_DECISIONS: Final[Mapping[str, Callable[[Given], Decision]]] = {
    "complete": lambda _: Complete(),
    "abandon": lambda _: Abandon(),
    "deadletter": lambda given: DeadLetter(given.reason, given.description),
    "defer": lambda _: Defer(),
    "resubmit": _resubmit,
}
