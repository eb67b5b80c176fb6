"""Magics that lock, settle, resubmit and send messages."""

from __future__ import annotations

import ast
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from IPython.core.magic_arguments import argument

from sbnotebook.client import Entity, LockedBatch, Messages, NamespaceCopy, Plan, read_copy
from sbnotebook.client.targets import address, duration
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import (
    ACTING,
    COUNT,
    DELAY,
    DESCRIPTION,
    DESTINATION,
    DRY_RUN,
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
    YES,
    MagicArguments,
    Quoted,
    count,
    count_or_all,
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
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, Message, Release
from sbnotebook.model.decision import AUTO, MaxResubmits
from sbnotebook.model.edits import edited_by
from sbnotebook.model.schema import message_from_row

if TYPE_CHECKING:
    from sbnotebook.client.rehearsal import Rehearsal

_SETTLING: Final = (WHERE, MESSAGES, DRY_RUN, YES, INTO)
_RENEW_FOR: Final = "30m"


@command(
    argument("entity", nargs="?", metavar="ENTITY", help="such as orders; without it, show the held messages"),
    option("-n, --count N", "maximum number of messages, or all (default 10)", type=count_or_all),
    option("--session SESSION", "lock this session and its messages"),
    option("--next-session", "lock the next session that has messages"),
    option("--renew-for DURATION", "time to renew the locks for (default 30m)", default=_RENEW_FOR),
    option("--max-wait DURATION", "maximum time to wait for the first message (default 5s)", default=5.0),
    INTO,
)
def sb_lock(current: Current, args: MagicArguments) -> LockedBatch:
    """Lock messages and hold them, with their locks renewed; without an entity, show the held messages.

    A notebook shows them as a board, with the time that their locks have left. Messages that were locked before
    and not settled are released first; those that are still held when the kernel ends are released then.

    Example::

        %sb_lock orders -n 20
        %sb_lock
        %sb_complete --where "subject = 'ok'"
        %sb_release
    """
    if args.entity is None:
        if args.count is not None or args.session is not None or args.next_session:
            raise ConfigurationError("Name the entity to lock messages of: %sb_lock ENTITY -n 10.")
        return current.batch
    if args.session is not None and args.next_session:
        raise ConfigurationError("Give --session or --next-session, not both.")
    # Release the batch before, which may hold messages of the same entity.
    current.release_and_say()
    count = current.settings.lock_count if args.count is None else args.count or None
    entity, renew_for = current.namespace.entity(args.entity), args.renew_for
    # A session is held before its first messages are received; a batch is held with them.
    if args.session is not None:
        batch = entity.session(args.session, renew_for=renew_for)
    elif args.next_session:
        batch = entity.next_session(max_wait=args.max_wait, renew_for=renew_for)
    else:
        return current.hold(entity.lock(count, max_wait=args.max_wait, renew_for=renew_for))
    current.hold(batch).receive(count, max_wait=args.max_wait)
    return batch


@command(
    option(
        "--for DURATION", "time to renew the locks for, from now (default 30m)", dest="renew_for", default=_RENEW_FOR
    ),
    INTO,
)
def sb_renew(current: Current, args: MagicArguments) -> datetime | None:
    """Renew the locks of the held messages for longer, from now.

    Example::

        %sb_renew --for 2h
    """
    batch = current.batch
    until = batch.extend(args.renew_for)
    say(f"The locks of {len(batch):,} messages are renewed until {until:%Y-%m-%d %H:%M:%S} UTC.")
    return until if args.into else None


@command(*_SETTLING)
def sb_complete(current: Current, args: MagicArguments) -> Plan:
    """Complete locked messages: the service removes them.

    Example::

        %sb_complete --where "subject = 'ok'" --dry-run
    """
    return _plan(current, Complete(), args)


@command(option("--delay DURATION", "time to hold them first, such as 2m; the cell waits"), *_SETTLING)
def sb_abandon(current: Current, args: MagicArguments) -> Plan:
    """Abandon locked messages: they are delivered again, with a delivery count one higher.

    Example::

        %sb_abandon --where "delivery_count < 3"
        %sb_abandon --delay 1s
    """
    return _plan(current, Abandon(duration(args.delay)), args)


@command(REASON, DESCRIPTION, *_SETTLING)
def sb_dead_letter(current: Current, args: MagicArguments) -> Plan:
    """Move locked messages to the dead-letter queue.

    Example::

        %sb_dead_letter --reason Invalid --description "No tail number" --where "body_json->>'$.tailnum' is null"
    """
    return _plan(current, DeadLetter(args.reason, args.description), args)


@command(
    option("--wake-after DURATION", "time until a wake-up message becomes active, such as 1h"),
    option("--wake-to DESTINATION", "queue or topic for the wake-up message (default: the queue itself)"),
    *_SETTLING,
)
def sb_defer(current: Current, args: MagicArguments) -> Plan:
    """Defer locked messages: from then on they can only be received by sequence number.

    %sb_deferred shows and settles them.

    Example::

        %sb_defer --where "subject = 'later'"
        %sb_defer --wake-after 1h
    """
    decision = Defer(duration(args.wake_after), address(args.wake_to))
    return _plan(current, decision, args)


@command(*_SETTLING)
def sb_release(current: Current, args: MagicArguments) -> Plan:
    """Release locked messages, as if they had not been delivered: their delivery counts stay.

    Example::

        %sb_release
    """
    return _plan(current, Release(), args)


def _plan(current: Current, decision: Decision, args: MagicArguments) -> Plan:
    batch = current.batch
    if batch.lost:
        say(f"{len(batch.lost):,} locks were lost: these messages are not held any more.")
    return batch.plan(decision, named(args, batch.address), where=args.where)


def _max_resubmits(text: str) -> MaxResubmits:
    return AUTO if text == AUTO else None if text.lower() == "none" else count(text)


_TRIED: Final = 5
"""Messages on which an edit is tried before the plan is shown."""


def _flag(name: str, what: str, *others: str) -> argument:
    return argument(f"--{name}", *others, action="append_const", dest="decision", const=name, help=what)


_COMPLETE: Final = _flag("complete", "complete the messages, which removes them")
_ABANDON: Final = _flag("abandon", "abandon the messages, which raises their delivery counts by one")
_DEADLETTER: Final = _flag("dead-letter", "dead-letter the messages", "--deadletter", "--dead_letter")
_DEFER: Final = _flag("defer", "defer the messages: %%sb_deferred shows and settles them")


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
    option("--resend-unknown", "resend clones that an interrupted run may have sent"),
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
    option(
        "--before DURATION", "only messages enqueued before a time such as 2026-01-31, or longer ago than 2d", type=str
    ),
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
    if args.to_entity is None:
        return args.to
    found = variable(args, args.to_entity)
    if args.to or not isinstance(found, Entity):
        raise ConfigurationError(
            "--to-entity names a variable such as other = connect(…).entity('orders'), without --to."
        )
    return found


def _decision(args: MagicArguments) -> Decision | None:
    wanted: list[str] = args.decision or []
    if len(wanted) > 1:
        raise ConfigurationError(f"Give one of {' and '.join(f'--{name}' for name in wanted)}.")
    verb = wanted[0] if wanted else ""
    if verb == DeadLetter.verb:
        return DeadLetter(args.reason, args.description)
    if args.reason or args.description:
        raise ConfigurationError("--reason and --description go with --dead-letter.")
    return {Complete.verb: Complete(), Abandon.verb: Abandon(), Defer.verb: Defer()}.get(verb)


_WHAT: Final = (
    argument("what", nargs="?", metavar="NAME", help="variable, or text in quotes; %%%%sb_send sends a cell"),
    option("--subject TEXT", "subject of the text"),
    option("--message-id TEXT", "message id of the text"),
    option("--content-type TEXT", "content type of the text (default application/json for JSON)"),
    option("--session-id SESSION", "session of the text"),
    option(
        "--property NAME=VALUE",
        "application property of the text; 2 and 0.5 are numbers, true is a truth value. Repeatable",
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
