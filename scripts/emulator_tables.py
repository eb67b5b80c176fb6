"""Write the tables of the emulator's documentation: ``python -m scripts.emulator_tables`` prints them all."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Final

from sbnotebook.emulator import QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.options import options_of
from sbnotebook.emulator.entities.transitions import TRANSITIONS
from sbnotebook.emulator.faults import ACTS, Faults

__all__ = ["act_table", "fault_table", "option_table", "transition_table"]

_SEEN: Final = ("What happens", "What the SDK's user sees, without retries")
_KINDS: Final = {"queue": QueueOptions, "topic": TopicOptions, "subscription": SubscriptionOptions}


def fault_table() -> str:
    """Return the persistent faults."""
    declared = [each for each in fields(Faults) if each.metadata]
    rows = [(f"`{each.name}`", each.metadata["what"], each.metadata["seen"]) for each in declared]
    return _table(("Fault", *_SEEN), rows)


def act_table() -> str:
    """Return the faults that happen once."""
    rows = [(f"`{name}({'path' if act.takes_path else ''})`", act.what, act.seen) for name, act in ACTS.items()]
    return _table(("Method", *_SEEN), rows)


def option_table() -> str:
    """Return the options of entities."""
    found = {name: option for kind in _KINDS.values() for name, option in options_of(kind).items()}
    rows: list[tuple[str, ...]] = []
    for name, option in sorted(found.items()):
        owners = ", ".join(owner for owner, kind in _KINDS.items() if name in options_of(kind))
        default = None if option.default is None else option.write(option.default)
        fixed = "; fixed from the creation on" if option.is_fixed else ""
        shown = "" if default is None else f"`{default}`"
        rows.append((f"`{name}`", f"`{option.attribute}`", f"{option.values}{fixed}", shown, owners))
    return _table(("In Service Bus and `Config.json`", "In Python", "Values", "Default", "Of"), rows)


def transition_table() -> str:
    """Return what happens to a message in each place."""
    rows = [
        (_words(place), _words(event), _words(row.to), row.actor, row.condition, "yes" if row.counts else "")
        for (place, event), row in TRANSITIONS.items()
    ]
    return _table(("From", "What happens", "To", "By whom", "When", "Counts"), rows)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _words(name: Enum) -> str:
    return name.name.lower().replace("_", " ")


if __name__ == "__main__":
    print(option_table(), fault_table(), act_table(), transition_table(), sep="\n")
