"""Count the dead-letter reasons and the subjects of the messages looked at, for an expression that matches none."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.settlement import names_sentence

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pyarrow as pa

_MOST_NAMES: Final = 1_000
"""Different names that are counted: the senders of messages choose them."""


@dataclass(slots=True)
class Present:
    """The dead-letter reasons, or of messages without any the subjects, of the messages looked at."""

    reasons: Counter[str] = field(default_factory=Counter[str])
    subjects: Counter[str] = field(default_factory=Counter[str])
    looked_at: int = 0

    def note(self, table: pa.Table) -> None:
        """Count the messages of a table."""
        self.looked_at += len(table)
        for name, names in (("dead_letter_reason", self.reasons), ("subject", self.subjects)):
            column: Any = table.column(name)
            for found in column.value_counts().to_pylist():
                value = found["values"] or ""
                if value in names or len(names) < _MOST_NAMES:
                    names[value] += found["counts"]

    async def noting(self, tables: AsyncGenerator[pa.Table]) -> AsyncGenerator[pa.Table]:
        """Yield the same tables, and count their messages."""
        async with aclosing(tables):
            async for table in tables:
                self.note(table)
                yield table

    def __str__(self) -> str:
        is_of_reasons = bool(self.reasons.keys() - {""})
        return names_sentence(
            self.reasons if is_of_reasons else self.subjects, self.looked_at, is_of_reasons=is_of_reasons
        )


def present_in(table: pa.Table) -> str:
    """Return the sentence on the messages of a table."""
    seen = Present()
    seen.note(table)
    return str(seen)
