"""Options for a read of those messages alone that an expression may match.

Spark's own way, ``DataSourceReader.pushFilters``, loses rows in Spark 4.3, also where Spark applies each filter again.
All queries of one frame share what the last of them pushed down: a count without a filter, and a union of two filters.
Source: ``PythonScanBuilder`` and ``PythonBatch`` of Spark 4.3.0; ``tests/spark/test_narrowing.py`` shows it.
"""

from __future__ import annotations

import re
from typing import Final

from sbnotebook.model import MessageState
from sbnotebook.spark.option_parser import MAX_NUMBER
from sbnotebook.spark.options import ReadOptions

_VALUE: Final = r"-?[0-9]{1,18}|'[^'\\]*'"
_CONDITION: Final = re.compile(
    rf"(?P<column>[a-z_]\w*)(?:\s+BETWEEN\s+(?P<least>[0-9]{{1,18}})\s+AND\s+(?P<most>[0-9]{{1,18}})"
    rf"|\s*(?P<sign>==?|>=?|<=?|<>|!=|\s(?:NOT\s+)?LIKE\s)\s*(?P<value>{_VALUE})|\s+IS\s+(?:NOT\s+)?NULL)",
    re.IGNORECASE | re.ASCII,
)
_AND: Final = re.compile(r"\s+AND\s+", re.IGNORECASE)


def narrowed(expression: str, options: ReadOptions) -> dict[str, str]:
    """Return options for a read of those messages that an expression may match; of all for one of other forms.

    It knows comparisons of columns with values, joined by AND: those of ``sequence_number`` and ``state`` become
    options. Two columns do not. Times may differ from the order of the numbers, by the clocks of nodes that take over
    an entity (Microsoft's documentation, "Message sequencing and timestamps"), and dead letters keep their own. A
    session's name may be on messages of an entity without sessions, and no source says what Service Bus returns to a
    peek that names a session there.
    """
    first, last, state = options.from_sequence_number, options.to_sequence_number or MAX_NUMBER, options.state
    for column, sign, value, least, most in _conditions(expression.strip()):
        if column == "sequence_number":
            low, high = _bounds(sign, value) if sign else (int(least or 1), int(most or MAX_NUMBER))
            first, last = max(first, low), min(last, high)
        elif column == "state" and sign in ("=", "==") and value[1:-1] in list(MessageState):
            state = state or MessageState(value[1:-1])
    # Where no number matches, a read of one message is the least.
    numbers = {"fromSequenceNumber": str(first), "toSequenceNumber": str(max(first, last))}
    return numbers if state is None else numbers | {"state": state.value}


def _conditions(text: str) -> list[tuple[str, str, str, str, str]]:
    """Return column, sign, value, and the ends of BETWEEN, of each condition; nothing for an expression of other forms.

    Example:
        >>> _conditions("sequence_number > 5 AND Subject = 'UA'")
        [('sequence_number', '>', '5', '', ''), ('subject', '=', "'UA'", '', '')]
        >>> _conditions("sequence_number > 5 OR subject = 'UA'")
        []
    """
    conditions: list[tuple[str, str, str, str, str]] = []
    place: int | None = 0
    while place is not None:
        found = _CONDITION.match(text, place)
        if found is None:
            return []
        column, sign, value, least, most = found.group("column", "sign", "value", "least", "most")
        conditions.append((column.lower(), sign or "", value or "", least or "", most or ""))
        joint = _AND.match(text, found.end())
        if joint is None and found.end() < len(text):
            return []
        place = None if joint is None else joint.end()
    return conditions


def _bounds(sign: str, value: str) -> tuple[int, int]:
    if value.startswith("'"):
        return 1, MAX_NUMBER
    number = int(value)
    least = {">": number + 1}.get(sign, number if sign in ("=", "==", ">=") else 1)
    most = {"<": number - 1}.get(sign, number if sign in ("=", "==", "<=") else MAX_NUMBER)
    return least, most
