"""Magics that act on messages that are not locked, and ``%sb_sample``, which copies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from IPython.core.magic_arguments import argument

from sbnotebook.client import Entity, Messages, NamespaceCopy, Plan, read_copy
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import (
    ACTING,
    COUNT,
    DELAY,
    DESCRIPTION,
    EDIT,
    EDIT_JSON,
    ENTITY,
    INTO,
    RAMP,
    REASON,
    STATE,
    STOP_AT,
    TO,
    UP_TO,
    WATCH,
    WHERE,
    MagicArguments,
    count,
    option,
)
from sbnotebook.magics.current import Current, say
from sbnotebook.magics.plan_magics import (
    CAUSE_OPTION,
    CHOOSING,
    MESSAGES,
    command,
    edit_function,
    named,
    selected,
    variable,
)
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer
from sbnotebook.model.decision import AUTO, MaxResubmits
from sbnotebook.model.edits import edited_by

if TYPE_CHECKING:
    from sbnotebook.client.rehearsal import Rehearsal


def _max_resubmits(text: str) -> MaxResubmits:
    return AUTO if text == AUTO else None if text.lower() == "none" else count(text)


_TRIED: Final = 5
"""Messages on which an edit is tried before the plan is shown."""


def _flag(name: str, what: str, *others: str) -> argument:
    return argument(f"--{name}", *others, action="append_const", dest="decision", const=name, help=what)


_COMPLETE: Final = _flag("complete", "remove them: they are done with")
_ABANDON: Final = _flag("abandon", "raise their delivery counts by one")
_DEADLETTER: Final = _flag("dead-letter", "move them to the dead-letter queue", "--deadletter", "--dead_letter")
_DEFER: Final = _flag("defer", "set them aside")


@command(
    ENTITY,
    *CHOOSING,
    TO,
    DELAY,
    EDIT,
    EDIT_JSON,
    option("--rehearse", "try it on copies in an emulator of this process"),
    option("--consumer NAME", "with --rehearse: function, or variable with a command"),
    option("--to-entity NAME", "variable with an entity of another namespace, instead of --to"),
    option(
        "--max-resubmits N",
        "maximum number of resubmits of a message, or none (default 5 for dead letters)",
        type=_max_resubmits,
        default=AUTO,
    ),
    option("--resend-unknown", "send again clones that an interrupted run may have sent already"),
    option("--atomic", "use one transaction for each message; experimental, untested on Azure"),
    option("--atomic-forward", "like --atomic, for another destination: the source queue forwards the clones"),
    RAMP,
    WATCH,
    STOP_AT,
    *ACTING,
)
def sb_resubmit(current: Current, args: MagicArguments) -> Plan | Rehearsal:
    """Send clones of messages of an entity, and complete the originals.

    Example::

        def fix(order):
            order["carrier"] = "UPS"

        %sb_resubmit orders/$dlq --where "dead_letter_reason = 'Invalid'" --edit-json fix --dry-run

        causes = %sb_groups orders/$dlq
        %sb_resubmit orders/$dlq --cause {causes[0].fingerprint} --dry-run
        %sb_resubmit orders/$dlq --cause {causes[0].fingerprint} --rehearse
        %sb_resubmit orders/$dlq --cause {causes[0].fingerprint} --ramp 1,5,20,100 --stop-at 2%%
    """
    if args.consumer and not args.rehearse:
        raise ConfigurationError("--consumer goes with --rehearse.")
    entity, to = current.namespace.entity(args.entity), _destination(args)
    meant, edit = selected(entity, args), edit_function(args)
    plan = entity.resubmit(
        meant,
        to=to,
        delay=args.delay,
        edit=edit,
        max_resubmits=args.max_resubmits,
        resend_unknown=args.resend_unknown,
        atomic="forward" if args.atomic_forward else args.atomic,
    )
    if edit is not None:
        for message in plan.messages[:_TRIED]:
            edited_by(edit, message)  # an edit that fails does so before the plan is shown
    if args.rehearse:
        consumer = variable(args, args.consumer) if args.consumer else None
        return current.namespace.rehearse(plan, consumer)
    return plan


@command(ENTITY, *CHOOSING, _COMPLETE, _ABANDON, _DEADLETTER, _DEFER, REASON, DESCRIPTION, *ACTING)
def sb_pick(current: Current, args: MagicArguments) -> Plan:
    """Settle or defer chosen messages anywhere in an entity, and no others; %sb_resubmit resubmits them.

    The messages before them are locked meanwhile and then released, which does not change their delivery counts.

    Example::

        %sb_pick orders --where "subject = 'duplicate'" --complete --dry-run
        %sb_pick orders --where "body_json->>'$.carrier' = 'UA'" --dead-letter --reason Cancelled
    """
    decision = _decision(args)
    if decision is None:
        raise ConfigurationError("Choose an action: --complete, --dead-letter, --defer or --abandon.")
    bounds = (args.where, args.count, args.messages, args.cause, args.state, args.to_sequence_number)
    if not any(bounds) and args.from_sequence_number == 1:
        raise ConfigurationError("Choose the messages: --where, --cause, -n or --messages.")
    entity = current.namespace.entity(args.entity)
    return entity.pick(selected(entity, args), decision)


@command(ENTITY, WHERE, MESSAGES, _COMPLETE, _ABANDON, _DEADLETTER, REASON, DESCRIPTION, *ACTING)
def sb_deferred(current: Current, args: MagicArguments) -> Messages | Plan:
    """Show the messages that are deferred in an entity; with a decision, settle them.

    The whole entity is peeked and compared with the journal. A deferred message that is not in the journal is an
    orphan: another machine deferred it. %sb_resubmit ENTITY --state deferred resubmits them.

    Example::

        %sb_deferred orders
        %sb_deferred orders --where "subject = 'later'" --complete
    """
    decision = _decision(args)
    if decision is None and args.messages:
        raise ConfigurationError("--messages goes with a decision; --where chooses the deferred messages to show.")
    entity = current.namespace.entity(args.entity)
    deferred = entity.deferred()
    if decision is None:
        return deferred.where(args.where) if args.where else deferred
    return deferred.plan(decision, named(args, entity.address), where=args.where)


@command(
    ENTITY,
    WHERE,
    STATE,
    option("--before DURATION", "only messages enqueued before 2026-01-31, or longer ago than 2d", type=str),
    UP_TO,
    option("--no-archive", "keep no copy: %%sb_undo cannot send them back"),
    *ACTING,
)
def sb_purge(current: Current, args: MagicArguments) -> Plan:
    """Remove the messages that are in an entity now; later ones stay.

    The archive of this machine keeps them for a time, and %sb_undo sends them back. With --no-archive, and no
    other choice than --before, Service Bus removes them itself, which takes seconds and cannot be undone.

    Example::

        %sb_purge orders/$dlq --before 30d --dry-run
        %sb_purge orders/$dlq --before 30d --no-archive
        %sb_purge orders --where "subject = 'test'"
    """
    return current.namespace.entity(args.entity).purge(
        where=args.where,
        before=args.before,
        to_sequence_number=args.to_sequence_number,
        state=args.state,
        archived=not args.no_archive,
    )


@command(
    argument("entity", nargs="?", metavar="ENTITY", help="entity of the messages, such as orders/$dlq"),
    WHERE,
    COUNT,
    STATE,
    MESSAGES,
    CAUSE_OPTION,
    option(
        "--mask PATH", "value to replace: $.email, application_properties.NAME or a column. Repeatable", action="append"
    ),
    option("--to FILE", "write the copy to a new file, such as orders.sbcopy", dest="to_file"),
    option("--overwrite", "with --to: replace an existing file"),
    option("--from FILE", "read the copy in a file, in place of an entity", dest="from_file"),
    INTO,
)
def sb_sample(current: Current, args: MagicArguments) -> NamespaceCopy | None:
    """Copy messages by peeking, into an emulator of this process or into a file.

    The value is a namespace with the entity, its options, rules and sessions, and the messages. It holds 10,000
    messages at most. The namespace of the connection stays as it is.

    Example::

        %sb_sample orders/$dlq -n 100 --mask $.carrier --mask message_id --into copy
        %sb_sample orders/$dlq --where "dead_letter_reason = 'Invalid'" --to orders.sbcopy
        %sb_sample --from orders.sbcopy --into copy
    """
    copy = _copy(current, args)
    if args.to_file is None:
        name = args.into or "_"
        connect = f"%sb_connect {{{name}.connection_string}}"
        say(f"Work in it with {name}.entity(…), or {connect}; {name}.close() ends it.")
        return copy
    try:
        path = copy.save(args.to_file, overwrite=args.overwrite)
    except BaseException:
        copy.close()
        raise
    say(f"Wrote {path}: {copy.summary}")
    if args.into:
        return copy
    copy.close()
    return None


def _copy(current: Current, args: MagicArguments) -> NamespaceCopy:
    if args.overwrite and args.to_file is None:
        raise ConfigurationError("--overwrite goes with --to.")
    choosing = (args.where, args.count, args.state, args.messages, args.cause, args.mask)
    if args.from_file is not None:
        if args.entity or args.to_file or any(choosing):
            raise ConfigurationError("--from reads the copy in a file: leave the entity and the other options out.")
        return read_copy(args.from_file)
    if args.entity is None:
        raise ConfigurationError("Name the entity to copy from, such as orders/$dlq, or read a copy: --from FILE.")
    from sbnotebook.client.copying import MOST  # it loads the emulator

    args.from_sequence_number, args.to_sequence_number = 1, None
    if args.count is None and args.messages is None and args.cause is None:
        args.count = MOST + 1  # one too many is enough to refuse
    entity = current.namespace.entity(args.entity)
    return current.namespace.copy_to("emulator", entity.address, selected(entity, args), mask=args.mask or ())


def _destination(args: MagicArguments) -> Entity | str | None:
    """Return where clones go: an address, or the entity of another namespace that a variable holds."""
    if args.to_entity is None:
        return args.to
    found = variable(args, args.to_entity)
    if args.to or not isinstance(found, Entity):
        raise ConfigurationError(
            "--to-entity names a variable such as other = connect(…).entity('orders'), without --to."
        )
    return found


def _decision(args: MagicArguments) -> Decision | None:
    """Return the decision that the options make; None when they make none."""
    wanted: list[str] = args.decision or []
    if len(wanted) > 1:
        raise ConfigurationError(f"Give one of {' and '.join(f'--{name}' for name in wanted)}.")
    verb = wanted[0] if wanted else ""
    if verb == DeadLetter.verb:
        return DeadLetter(args.reason, args.description)
    if args.reason or args.description:
        raise ConfigurationError("--reason and --description go with --dead-letter.")
    return {Complete.verb: Complete(), Abandon.verb: Abandon(), Defer.verb: Defer()}.get(verb)
