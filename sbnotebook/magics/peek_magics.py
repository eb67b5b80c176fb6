"""``%sb_peek``, ``%sb_groups`` and ``%sb_spark``: look at messages and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbnotebook.analysis.groups import CAUSE, TRAITS
from sbnotebook.client import Entity, Messages
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import (
    COUNT,
    DECODE,
    ENTITY,
    FROM,
    INTO,
    PEEK_COUNT,
    STATE,
    UP_TO,
    WHERE,
    MagicArguments,
    option,
)
from sbnotebook.magics.current import Current, say
from sbnotebook.magics.plan_magics import command, peeked


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
        "write the messages, all by default: .parquet and .jsonl keep everything, .csv is to look at",
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
    limit = _limit(current, args)
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


def _limit(current: Current, args: MagicArguments) -> int | None:
    if args.count is not None:
        return args.count or None
    return current.settings.peek_count if args.where is None and args.to_file is None else None


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
