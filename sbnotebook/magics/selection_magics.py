"""``%sb_resubmit``, ``%sb_pick``, ``%sb_deferred`` and ``%sb_purge``: select messages that are not locked, and act."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument

from sbnotebook.client import Entity, Messages, Plan
from sbnotebook.client.coercions import address, duration
from sbnotebook.errors import ConfigurationError
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
    MagicArguments,
)
from sbnotebook.magics.plan_magics import PlanMagics, command, edit_function, variable
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    ReceivedMessage,
    Resubmit,
)

__all__ = ["SelectionMagics"]

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
class SelectionMagics(PlanMagics):
    """Magics that act on messages that are not locked yet."""

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
        argument("--atomic", action="store_true", help="each in one transaction; experimental, untested on Azure"),
        argument(
            "--atomic-forward",
            action="store_true",
            help="the same, also to other entities, to which the own entity forwards the clones later",
        ),
        *_ACTING,
    )
    def sb_resubmit(self, args: MagicArguments) -> Plan:
        """Send clones of messages of an entity, and complete the originals.

        Example::

            def fix(message):
                return message.with_changes(body=message.body.replace(b"null", b"0"))

            %sb_resubmit orders/$dlq --where "dead_letter_reason = 'Invalid'" --edit fix --dry-run
        """
        entity = self.current.namespace.entity(args.entity)
        messages = [each for each in _selected(entity, args) if isinstance(each, ReceivedMessage)]
        edit = edit_function(args)
        if edit is not None:
            for message in messages[:_TRIED]:
                edit(message)  # an edit that fails does so before the plan is shown
        return entity.resubmit(
            messages,
            to=args.to,
            delay=args.delay,
            edit=edit,
            max_resubmits=args.max_resubmits,
            resend_unknown=args.resend_unknown,
            atomic="forward" if args.atomic_forward else args.atomic,
        )

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
    def sb_pick(self, args: MagicArguments) -> Plan:
        """Settle, defer or resubmit chosen messages anywhere in an entity, and no others.

        The messages before them are locked meanwhile and then released, which does not change their delivery counts.

        Example::

            %sb_pick orders --where "subject = 'duplicate'" --complete --dry-run
            %sb_pick orders --where "body_json->>'$.carrier' = 'UA'" --deadletter --reason Cancelled
        """
        decision = _decision(args)
        if decision is None:
            raise ConfigurationError("Say what to do: --complete, --deadletter, --defer, --resubmit or --abandon.")
        if args.where is None and args.count is None and args.messages is None:
            raise ConfigurationError("Say which messages: --where, -n or --messages.")
        entity = self.current.namespace.entity(args.entity)
        return entity.pick(_selected(entity, args), decision, edit=edit_function(args))

    @line_magic
    @command(ENTITY, WHERE, _COMPLETE, _ABANDON, _DEADLETTER, _RESUBMIT, REASON, DESCRIPTION, TO, DELAY, EDIT, *_ACTING)
    def sb_deferred(self, args: MagicArguments) -> Messages | Plan:
        """Show the messages that are deferred in an entity; with a decision, settle them.

        The whole entity is peeked and compared with the journal. A deferred message that is not in the journal is an
        orphan: another machine deferred it.

        Example::

            %sb_deferred orders
            %sb_deferred orders --where "subject = 'later'" --complete
        """
        decision = _decision(args)
        entity = self.current.namespace.entity(args.entity)
        deferred = entity.deferred()
        if decision is None:
            return deferred.where(args.where) if args.where else deferred
        if isinstance(decision, Resubmit):
            chosen = deferred.where(args.where)
            plan = entity.resubmit(chosen, to=args.to, delay=args.delay, edit=edit_function(args))
        else:
            plan = deferred.plan(decision, where=args.where)
        return plan

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
    def sb_purge(self, args: MagicArguments) -> Plan:
        """Remove the messages that are in an entity now; later ones stay.

        The archive of this machine keeps them for a time, and %sb_undo sends them back.

        Example::

            %sb_purge orders/$dlq --before 30d --dry-run
            %sb_purge orders --where "subject = 'test'"
        """
        return self.current.namespace.entity(args.entity).purge(
            where=args.where,
            before=args.before,
            to_sequence_number=args.to_sequence_number,
            state=args.state,
            archived=not args.no_archive,
        )


def _selected(entity: Entity, args: MagicArguments) -> list[ReceivedMessage | int]:
    """Return the messages that ``--messages``, or ``--where`` and ``-n``, select."""
    if args.messages is not None:
        if args.where is not None or args.count is not None:
            raise ConfigurationError("--messages says which ones: leave --where and -n out.")
        found = variable(args, args.messages)
        return [found] if isinstance(found, (ReceivedMessage, int)) else _listed(found, args.messages)
    looked_at = args.count if args.where is None else None
    return list(entity.peek(looked_at, where=args.where, state="active")[: args.count])


def _listed(found: object, name: str) -> list[ReceivedMessage | int]:
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes)):
        return list(found)
    raise ConfigurationError(f"The variable {name} holds no messages, and no sequence numbers.")


def _decision(args: MagicArguments) -> Decision | None:
    """Return the decision that the options make; None when they make none."""
    wanted: list[str] = args.decision or []
    if len(wanted) > 1:
        raise ConfigurationError(f"Give one of {' and '.join(f'--{name}' for name in wanted)}.")
    verb = wanted[0] if wanted else ""
    if verb != "deadletter" and (args.reason or args.description):
        raise ConfigurationError("--reason and --description go with --deadletter.")
    if verb != "resubmit" and (args.to or args.delay or args.edit):
        raise ConfigurationError("--to, --delay and --edit go with --resubmit.")
    return _DECISIONS[verb](args) if verb else None


def _resubmit(args: MagicArguments) -> Resubmit:
    return Resubmit(address(args.to), duration(args.delay))


_DECISIONS: Final[Mapping[str, Callable[[MagicArguments], Decision]]] = {
    "complete": lambda _: Complete(),
    "abandon": lambda _: Abandon(),
    "deadletter": lambda args: DeadLetter(args.reason, args.description),
    "defer": lambda _: Defer(),
    "resubmit": _resubmit,
}
