"""Magics that look at messages and entities, and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import needs_local_scope, no_var_expand
from IPython.core.magic_arguments import argument

from sbnotebook.analysis.groups import CAUSE, TRAITS
from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client import Entity, Messages
from sbnotebook.client.dead_letters import SAMPLE, DeadLetters
from sbnotebook.client.difference import MessageDifference
from sbnotebook.client.finding import MOST_FOUND, FoundMessages
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.magics.arguments import (
    COUNT,
    DECODE,
    ENTITY,
    FROM,
    INTO,
    MAYBE_ENTITY,
    PEEK_COUNT,
    STATE,
    TASKS,
    UP_TO,
    WHERE,
    MagicArguments,
    Quoted,
    about_name,
    count,
    option,
    whole,
)
from sbnotebook.magics.current import Current, has_widgets, say
from sbnotebook.magics.plan_magics import COMMANDS, command, peeked

if TYPE_CHECKING:
    from sbnotebook.widgets.entity_browser import Browser
    from sbnotebook.widgets.monitor import Monitor
    from sbnotebook.widgets.triage import Triage


@command(
    ENTITY,
    PEEK_COUNT,
    WHERE,
    DECODE,
    STATE,
    FROM,
    UP_TO,
    option("--sequence-number N", "only the message with this number, as --from N -t N", type=int),
    option("--session SESSION", "only messages of this session; does not lock it"),
    option(
        "--to FILE",
        "write the messages, all by default: .parquet and .jsonl keep everything, .csv is for spreadsheets",
        dest="to_file",
    ),
    option("--overwrite", "with --to: replace an existing file"),
    INTO,
)
def sb_peek(current: Current, args: MagicArguments) -> Messages | Path | None:
    """Look at messages without locking them, or write them to a file.

    The first rows are shown as a table; the value has all of them, with ``to_pandas()``, ``to_arrow()``,
    ``where(…)`` and ``groups()``. %sb_browse shows them in a table to sort and filter.

    Example::

        %sb_peek orders/$dlq
        %sb_peek orders/$dlq --where "dead_letter_reason = 'Invalid' and body_json->>'$.carrier' = 'UA'"
        letters = %sb_peek orders/$dlq -n all
        %sb_peek orders/$dlq --to letters.parquet
        %sb_peek orders --decode avro:order.avsc --where "body_json->>'$.carrier' = 'UA'"
    """
    entity = current.namespace.entity(args.entity)
    if args.sequence_number is not None:
        args.from_sequence_number = args.to_sequence_number = args.sequence_number
    limit = current.settings.peek_count if args.where is None and args.to_file is None else None
    if args.count is not None:
        limit = args.count or None
    most = None if limit is None else limit + 1
    found = peeked(entity, args, most, state=args.state, session_id=args.session, decode=args.decode)
    if args.to_file is not None:
        path = found[:limit].export(args.to_file, overwrite=args.overwrite)
        say(f"Wrote {len(found[:limit]):,} messages of {args.entity} to {path}.")
        return path if args.into else None
    if limit is not None and len(found) > limit:
        more = _how_many_more(current, entity, args, limit)
        go_on = f"--from {found[limit].sequence_number} continues, and %sb_browse {entity.address} pages through them"
        say(f"{more} follow: -n all looks at every one, {go_on}.")
    return found[:limit]


def _how_many_more(current: Current, entity: Entity, args: MagicArguments, shown: int) -> str:
    if args.where:
        return "More messages that match"
    if args.state or args.session or args.to_sequence_number or args.from_sequence_number > 1:
        return "More messages"  # the service does not count these
    try:
        (counts,) = current.namespace.counts([entity.address.entity])
    except Exception:  # noqa: BLE001 (without the right to manage, or without an answer, they are not counted)
        return "More messages"
    sub_queue = entity.address.sub_queue
    standing = counts.count_in(sub_queue) + (counts.scheduled if sub_queue is None else 0)
    return f"About {standing - shown:,} more messages" if standing > shown else "More messages"


@command(
    ENTITY,
    COUNT,
    WHERE,
    DECODE,
    STATE,
    FROM,
    UP_TO,
    option(
        "--by", "trait to group by (default reason, description and frame). Repeatable", choices=TRAITS, action="append"
    ),
    option("--kql", "show a Kusto query for the telemetry of these messages"),
    option("--telemetry WORKSPACE", "ask this Log Analytics workspace for their exceptions"),
    INTO,
)
def sb_groups(current: Current, args: MagicArguments) -> Any:
    """Group the messages of an entity by what went wrong with them, the largest group first.

    A group has a fingerprint, which %sb_resubmit and %sb_pick take as --cause. The query of --kql finds exceptions
    and failed dependencies in Application Insights by the traces of the messages. --telemetry runs it, as your
    account of Azure.

    Example::

        %sb_groups orders/$dlq
        %sb_groups orders/$dlq --by reason --by subject
        %sb_groups orders/$dlq --kql
    """
    if args.kql and args.telemetry:
        raise ConfigurationError("Give --kql or --telemetry, not both.")
    entity = current.namespace.entity(args.entity)
    found = peeked(entity, args, args.count, state=args.state, decode=args.decode)
    if not found:
        say(found.as_text())
    groups = found.groups(args.by or CAUSE)
    if args.telemetry:
        return groups.telemetry(args.telemetry)
    if not args.kql:
        return groups
    say(groups.kql())
    return groups.kql() if args.into else None


@command(
    ENTITY,
    COUNT,
    option("-w, --where EXPRESSION", "only messages that match, in the SQL of Spark"),
    DECODE,
    STATE,
    FROM,
    UP_TO,
    option("-p, --partitions N", "number of ranges to peek in parallel (default 1)", type=str),
    INTO,
)
def sb_spark(current: Current, args: MagicArguments) -> Any:
    """Load the messages of an entity into Spark by peeking; nothing is locked or removed.

    It uses the active Spark session, or else starts one on this machine, which is also bound to the variable
    spark. The frame peeks again each time you use it, unless you cache it.

    Example::

        %sb_spark orders/$dlq --into letters
        letters.groupBy("dead_letter_reason").count().show()
        %sb_spark orders/$dlq --partitions 4 --state deferred --into deferred
    """
    from sbnotebook.spark import load

    frame = load(
        current.namespace,
        args.entity,
        say=say,
        where=args.where,
        maxMessages=args.count,
        fromSequenceNumber=args.from_sequence_number,
        toSequenceNumber=args.to_sequence_number,
        state=args.state,
        partitions=args.partitions,
        decode=args.decode,
    )
    shell: Any = current.shell
    shell.user_ns.setdefault("spark", frame.sparkSession)
    return frame


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
    argument(
        "entities",
        nargs="*",
        metavar="ENTITY",
        help="queues, subscriptions, or topics with their subscriptions (default: all)",
    ),
    option(
        "--sample N",
        f"number of messages to read causes from in each queue, {SAMPLE} at most (default {SAMPLE})",
        default=SAMPLE,
    ),
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


@command(MAYBE_ENTITY, INTO)
def sb_browse(current: Current, args: MagicArguments) -> Browser:
    """Browse the entities with their counts, and the messages of the one that you click.

    Example::

        %sb_browse
        %sb_browse orders/$dlq
    """
    from sbnotebook.widgets.entity_browser import Browser

    browser = Browser(current.namespace, args.entity)
    if not has_widgets(current.shell):  # a terminal shows it once, as text: it must be complete first
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
    if not has_widgets(current.shell):
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
    if not has_widgets(current.shell):
        monitor.sample()
    return monitor
