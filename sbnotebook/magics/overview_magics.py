"""``%sb``, and the magics that look at many entities or messages at once, as tables or as panels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import needs_local_scope, no_var_expand
from IPython.core.magic_arguments import argument

from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client.dead_letters import SAMPLE, DeadLetters
from sbnotebook.client.difference import MessageDifference
from sbnotebook.client.finding import MOST_FOUND, FoundMessages
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.magics.arguments import (
    COUNT,
    DECODE,
    ENTITY,
    INTO,
    MAYBE_ENTITY,
    WHERE,
    MagicArguments,
    Quoted,
    count,
    option,
    whole,
)
from sbnotebook.magics.current import Current, has_widgets, say
from sbnotebook.magics.names import TASKS, about_name
from sbnotebook.magics.plan_magics import COMMANDS, command

if TYPE_CHECKING:
    from sbnotebook.widgets.entity_browser import Browser
    from sbnotebook.widgets.monitor import Monitor
    from sbnotebook.widgets.triage import Triage

_ENTITIES: Final = argument(
    "entities",
    nargs="*",
    metavar="ENTITY",
    help="queues, subscriptions, or topics with their subscriptions (default: all)",
)
_SAMPLE: Final = option(
    "--sample N",
    f"number of messages to read causes from in each queue, {SAMPLE} at most (default {SAMPLE})",
    default=SAMPLE,
)


class Overview(Shown):
    """All magics by task, with the first sentence of their help."""

    _one_line = False

    def _table(self, most: int) -> Table:  # noqa: ARG002 (all rows)
        rows = [
            (task if verb is verbs[0] else "", f"%sb_{verb}", COMMANDS[f"sb_{verb}"].summary)
            for task, verbs in TASKS.items()
            for verb in verbs
        ]
        caption = "%sb VERB … is the same as %sb_VERB …, and %sb_VERB? shows its help."
        return ("task", "magic", "what it does"), rows, caption


def register_overview(shell: Any) -> None:
    """Let a shell have ``%sb``."""

    @no_var_expand
    @needs_local_scope
    def sb(line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> object:
        """Show the magics by task; with a verb, run the magic of this name.

        Example::

            %sb
            %sb peek orders/$dlq
        """
        verb, _, rest = line.strip().partition(" ")
        if not verb and not cell:
            return Overview()
        name = f"sb_{verb.lower().replace('-', '_')}"
        magic = shell.find_line_magic(name) if cell is None else shell.find_cell_magic(name)
        if magic is None:
            raise UsageError(about_name(f"sb {verb}"))
        return magic(rest, cell, local_ns)

    shell.register_magic_function(sb, "line_cell")


@command(
    _ENTITIES,
    _SAMPLE,
    option("--fail-above N", "fail if a queue has more messages, for jobs", type=whole),
    option("--to FILE", "write a report: .md for Markdown, .html for a page", dest="to_file"),
    option("--overwrite", "with --to: replace an existing file"),
    INTO,
)
def sb_dlq(current: Current, args: MagicArguments) -> DeadLetters:
    """Show all dead-letter queues: their counts, growth, oldest and newest messages, and most frequent causes.

    The growth is since the last look from this machine. Causes come from a sample, the first messages of each
    queue.

    Example::

        %sb_dlq
        %sb_dlq orders events --sample 50
        %sb_dlq --fail-above 100
        %sb_dlq orders --to dead-letters.html
    """
    letters = current.namespace.dead_letters(args.entities or None, sample=args.sample)
    if args.to_file is not None:
        say(f"Wrote {letters.write(args.to_file, overwrite=args.overwrite)}.")
    above = [] if args.fail_above is None else letters.above(args.fail_above)
    if above:
        say(str(letters))
        said = ", ".join(f"{queue.address} ({queue.count:,})" for queue in above)
        raise DecisionError(f"More than {args.fail_above:,} dead letters: {said}.")
    return letters


@command(
    argument(
        "entities", nargs="*", metavar="ENTITY", help="queues, topics, subscriptions or sub-queues (default: all)"
    ),
    option("--message-id ID", "message id; finds resubmitted clones, too"),
    option("--correlation-id ID", "correlation id"),
    WHERE,
    option("-n, --count N", f"maximum number of messages (default {MOST_FOUND})", default=MOST_FOUND),
    option("--depth N", "look at the first N messages of each queue only"),
    DECODE,
    INTO,
)
def sb_find(current: Current, args: MagicArguments) -> FoundMessages:
    """Find messages in all entities and their dead-letter queues, and show where they are, in the order of time.

    Example::

        %sb_find --correlation-id order-4711
        %sb_find --message-id 7f3c orders events
        %sb_find --where "body_json.customer = 'ada'" --depth 5000
    """
    return current.namespace.find(
        args.entities or None,
        message_id=args.message_id,
        correlation_id=args.correlation_id,
        where=args.where,
        max_messages=args.count,
        depth=args.depth,
        decode=args.decode,
    )


@command(
    argument("entity", metavar="ENTITY", help="entity of the first message, such as orders/$dlq"),
    argument("one", metavar="N", type=count, help="sequence number of the first message"),
    argument(
        "other",
        nargs="?",
        metavar="M",
        type=count,
        help="sequence number of the second message (default: the last good message with the same subject)",
    ),
    option("--with ENTITY", "entity of the second message (default: the same)", dest="other_entity"),
    INTO,
)
def sb_diff(current: Current, args: MagicArguments) -> MessageDifference:
    """Compare two messages: their fields, properties, and the values in JSON bodies.

    Example::

        %sb_diff orders/$dlq 1
        %sb_diff orders/$dlq 1 2
        %sb_diff orders/$dlq 1 6 --with orders
    """
    return current.namespace.diff(args.entity, args.one, args.other, other_entity=args.other_entity)


@command(
    argument("entities", nargs="*", metavar="ENTITY", help="queues, subscriptions or sub-queues"),
    option("-n, --count N", "look at the first N messages of each (default all)"),
    option("--bodies", "give the table archive the columns of bodies"),
    INTO,
    takes_cell=True,
)
def sb_sql(current: Current, args: MagicArguments) -> Any:
    """Run a SQL query over messages and over the files of this machine, and return a pandas frame.

    The query is the cell, or a text in quotes behind the entities. Its tables are messages, with the message
    columns and body_json, and journal, archive and notes of this machine. It sees no file and no other table.

    Example::

        %sb_sql orders "select subject, count(*) from messages group by all"

        %%sb_sql orders/$dlq --into causes
        select dead_letter_reason, count(*) as messages, max(enqueued_time) as newest
        from messages group by all order by messages desc

        %%sb_sql
        select cause, any_value(note) as note, count(*) as sent_back from journal left join notes using (cause)
        where resubmitted > now() - interval 7 day group by cause
    """
    query = args.cell
    if query is None and args.entities and isinstance(args.entities[-1], Quoted):
        query = str(args.entities.pop())
    if query is None or not query.strip():
        raise ConfigurationError(
            'Write the query in quotes, %sb_sql ENTITY "select * from messages", or below %%sb_sql ENTITY.'
        )
    return current.namespace.sql(query, args.entities, max_messages=args.count, bodies=args.bodies)


def _is_terminal(current: Current) -> bool:
    """Return True when a panel is shown once, as text, and so must be complete first."""
    return not has_widgets(current.shell)


@command(MAYBE_ENTITY, INTO)
def sb_browse(current: Current, args: MagicArguments) -> Browser:
    """Browse the entities with their counts, and the messages of the one that you click.

    Example::

        %sb_browse
        %sb_browse orders/$dlq
    """
    from sbnotebook.widgets.entity_browser import Browser

    browser = Browser(current.namespace, args.entity)
    if _is_terminal(current):
        browser.wait()
    return browser


@command(ENTITY, COUNT, INTO)
def sb_triage(current: Current, args: MagicArguments) -> Triage:
    """Find out why messages are dead letters, choose some, repair them, and send them back.

    The panel also offers to finish the resubmits that an earlier kernel left in the journal.

    Example::

        %sb_triage orders/$dlq
    """
    from sbnotebook.widgets.triage import Triage

    triage = Triage(current.namespace, args.entity, max_messages=args.count)
    if _is_terminal(current):
        triage.wait()
    return triage


@command(
    argument(
        "entities", nargs="*", metavar="ENTITY", help="entities to watch (default: the 12 with the most messages)"
    ),
    option("--every DURATION", "polling interval (default 5s)", default=5.0),
    INTO,
)
def sb_monitor(current: Current, args: MagicArguments) -> Monitor:
    """Watch counts, the age of the oldest message, and the rates of arrival and departure.

    The counts take a management operation for each entity each time: name those that matter.

    Example::

        %sb_monitor orders results --every 10s
    """
    from sbnotebook.widgets.monitor import Monitor

    monitor = Monitor(current.namespace, args.entities or None, every=args.every)
    if _is_terminal(current):
        monitor.sample()
    return monitor
