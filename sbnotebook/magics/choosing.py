"""The options with which magics choose messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from IPython.core.magic_arguments import argument

from sbnotebook.analysis.groups import CAUSE, TRAITS, Trait
from sbnotebook.client import Entity, Messages
from sbnotebook.client.choosing import Choice, chosen
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import COUNT, FROM, STATE, UP_TO, WHERE, MagicArguments
from sbnotebook.magics.plan_magics import variable
from sbnotebook.model import EntityAddress, ReceivedMessage

MESSAGES: Final = argument(
    "--messages",
    metavar="NAME",
    help="sequence numbers such as 7,12-15, or a variable with messages, sequence numbers, a frame or a group",
)
CAUSE_OPTION: Final = argument("--cause", metavar="FINGERPRINT", help="only messages of this group of %%sb_groups")
CHOOSING: Final = (WHERE, COUNT, STATE, FROM, UP_TO, MESSAGES, CAUSE_OPTION)
_NUMBERS: Final = re.compile(r"[0-9]{1,19}+(?:-[0-9]{1,19}+)?+(?:,[0-9]{1,19}+(?:-[0-9]{1,19}+)?+)*+")
_MOST_NUMBERS: Final = 1_000_000


def named(args: MagicArguments, address: EntityAddress) -> Choice | None:
    """Return the messages that ``--messages`` names; None without it."""
    if args.messages is None:
        return None
    is_typed = _NUMBERS.fullmatch(args.messages)
    return _numbers(args.messages) if is_typed else chosen(variable(args, args.messages), address)


def selected(entity: Entity, args: MagicArguments) -> Choice:
    """Return the messages that ``--messages``, or the other options of ``CHOOSING`` together, select."""
    if args.messages is not None:
        others = (args.where, args.count, args.cause, args.state, args.to_sequence_number)
        if any(each is not None for each in others) or args.from_sequence_number != 1:
            raise ConfigurationError(
                "--messages says which ones: leave --where, --cause, --state, --from, -t and -n out."
            )
        return named(args, entity.address)
    found = peeked(entity, args, args.count if args.cause is None else None, state=args.state or "active")
    return found if args.cause is None else _of_cause(found, args.cause)[: args.count]


def peeked(entity: Entity, args: MagicArguments, most: int | None, **options: Any) -> Messages:
    """Peek at the messages that ``--where``, ``--from`` and ``-t`` select."""
    start, end = args.from_sequence_number, args.to_sequence_number
    return entity.peek(most, where=args.where, from_sequence_number=start, to_sequence_number=end, **options)


def _of_cause(found: Messages, fingerprint: str) -> Sequence[ReceivedMessage]:
    # By every trait, too, so that the fingerprints of --by are known.
    wanted: list[Sequence[Trait]] = [CAUSE, TRAITS, *((trait,) for trait in TRAITS)]
    for by in wanted:
        for group in found.groups(by):
            if group.fingerprint == fingerprint:
                return group.messages
    raise ConfigurationError(
        f"There is no group with the fingerprint {fingerprint[:40]!r} among these messages: %sb_groups shows them."
    )


def _numbers(text: str) -> list[int]:
    """Return sequence numbers that are written as 7,12-15."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise ConfigurationError(f"The range {part} runs backwards: write the lower sequence number first.")
        if len(numbers) + len(span) > _MOST_NUMBERS:
            raise ConfigurationError(f"{text[:40]!r} are more than {_MOST_NUMBERS:,} numbers: use --from and -t.")
        numbers += span
    return numbers
