"""The causes of the messages of a table, for the list beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sbnotebook.analysis.arrays import array_of_numbers
from sbnotebook.analysis.groups import CAUSE, CauseReader, Group, group_by_cause
from sbnotebook.widgets.pretty import visible

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes of the first rows of a table, in which each row is examined once."""

    fingerprints: list[str] = field(default_factory=list[str])
    """The cause of each row."""
    every: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """The texts of each cause, by its fingerprint."""
    _read: CauseReader = field(default_factory=CauseReader)

    def and_of(self, table: pa.Table) -> Causes:
        """Return these, and those of the further rows of a table."""
        added: Any = table.slice(len(self.fingerprints))
        # By place: two entities may have messages with the same sequence number.
        places = array_of_numbers(np.arange(len(added), dtype=np.int64))
        number = added.schema.get_field_index("sequence_number")
        found, every = [""] * len(added), self.every.copy()
        for group in group_by_cause(added.set_column(number, "sequence_number", places), CAUSE, self._read):
            every.setdefault(group.fingerprint, _told(group))
            for place in group.sequence_numbers:
                found[place] = group.fingerprint
        return Causes([*self.fingerprints, *found], every, self._read)


def _told(group: Group) -> dict[str, str]:
    texts = {
        "reason": group.reason,
        "cause": group.cause,
        "frame": group.frame,
        "subject": group.subject,
        "source": group.source,
    }
    return {"fingerprint": group.fingerprint} | {name: visible((text or "")[:_LONGEST]) for name, text in texts.items()}
