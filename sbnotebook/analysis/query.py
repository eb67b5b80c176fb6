"""Filter messages by a SQL boolean expression over the message columns.

DuckDB parses and evaluates it over Arrow, without access to anything outside. It is one expression about one message:
queries within it are refused, so that it cannot run for ever, or reach another table.
"""

from __future__ import annotations

import difflib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import pyarrow as pa

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.tables import printable
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message

if TYPE_CHECKING:
    import duckdb

__all__ = ["filtered", "matching", "where"]

M = TypeVar("M", bound=Message)

_INDEX: Final = "row_index_"
_BODY_JSON: Final = "body_json"
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
}
_MOST_SECONDS: Final = 60.0
_LONGEST: Final = 20_000
_SHOWN: Final = 200
_SHOWN_REASON: Final = 500
# A body that is not JSON must not fail the expression for all the others.
_COLUMNS: Final = f"*, CASE WHEN json_valid(body_text) THEN CAST(body_text AS JSON) END AS {_BODY_JSON}"
_SELECT: Final = "SELECT "
_CLAUSES: Final = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")
_OUTSIDE: Final = frozenset({"current_setting", "getenv", "getvariable", "nextval", "currval", "query", "query_table"})
"""Functions that read something else than the message."""
_NO_COLUMN: Final = re.compile(r"Referenced (?:column|table) \"([^\"]+)\" not found")
_TRUTHS: Final = frozenset({"BOOLEAN", "NULL", '"NULL"', "SQLNULL"})


def where(messages: Sequence[M], expression: str | None) -> list[M]:
    """Return the messages for which an expression is true, in their order.

    Args:
        messages: the messages to filter.
        expression: over the message columns and ``body_json``, in DuckDB's SQL, for example
            ``dead_letter_reason = 'Invalid' and body_json->>'$.carrier' = 'UA'``; None for all messages. A missing
            value makes a comparison neither true nor false, and ``body_json`` is missing where a body is not JSON.

    Raises:
        ConfigurationError: the expression is wrong; names the column or the place.

    Example:
        >>> messages = [Message(body=b'{"n": 1}'), Message(body=b'{"n": 2}')]
        >>> [message.body for message in where(messages, "(body_json->>'$.n')::int > 1")]
        [b'{"n": 2}']
    """
    if expression is None:
        return list(messages)
    return [messages[index] for index in matching(to_arrow(messages), expression)]


def filtered(table: pa.Table, expression: str) -> pa.Table:
    """Return the rows of a table for which an expression is true: see :func:`where`."""
    chosen = [False] * len(table)
    for index in matching(table, expression):
        chosen[index] = True
    return table.filter(pa.array(chosen, pa.bool_()))


def matching(table: pa.Table, expression: str) -> list[int]:
    """Return the positions of the rows for which an expression is true, ascending: see :func:`where`."""
    import duckdb

    expression = str(expression)  # DuckDB takes an instance of a subclass for the name of a column
    if len(expression) > _LONGEST:
        _refuse(expression, f"it is longer than {_LONGEST:,} characters")
    # The index tells which rows are left.
    indexed = table.append_column(_INDEX, pa.array(range(len(table)), type=pa.int64()))
    with duckdb.connect(":memory:", config=_CONFIG) as database:
        database.execute("SET lock_configuration = true")
        # An expression may be slow: interrupt it from another thread.
        timer = threading.Timer(_MOST_SECONDS, database.interrupt)
        timer.daemon = True
        timer.start()
        tree: Any = None
        try:
            tree = _parsed(database, expression)
            rows = database.from_arrow(indexed).project(_COLUMNS)
            chosen = rows.filter(expression)
            kind = str(rows.project(expression).types[0])
            if kind not in _TRUTHS:
                _refuse(expression, f"it gives a {kind}, and not true or false: compare it with something")
            found = chosen.project(_INDEX).fetchall()
        except duckdb.InterruptException:
            _refuse(expression, f"it took more than {_MOST_SECONDS:.0f} seconds")
        except duckdb.Error as error:
            _refuse(expression, _reason(error, tree, table, expression))
        finally:
            timer.cancel()
    return sorted(index for (index,) in found)


def _parsed(database: duckdb.DuckDBPyConnection, expression: str) -> Any:
    """Parse one expression with DuckDB, and refuse queries in it."""
    import duckdb

    # DuckDB describes a statement as JSON, without running it.
    try:
        [(text,)] = database.execute("SELECT json_serialize_sql($1::VARCHAR)", [_SELECT + expression]).fetchall()
        answer: Any = json.loads(text)
    except (RecursionError, UnicodeError, duckdb.Error) as error:
        _refuse(expression, f"it cannot be parsed: {_shown(error)}")
    if answer.get("error"):
        _refuse(expression, f"{_shown(answer.get('error_message'))}{_place(expression, answer.get('position'))}")
    # It must be one term, without clauses or tables.
    statements: Any = answer["statements"]
    node: Any = statements[0]["node"] if len(statements) == 1 else {}
    terms: Any = node.get("select_list", ())
    if len(terms) != 1 or any(node.get(clause) for clause in _CLAUSES) or node["from_table"]["type"] != "EMPTY":
        _refuse(expression, "it must be one expression that is true or false of a message")
    # No part of it may be a query, or a function that reads something else.
    for part in _parts(terms[0]):
        if part.get("class") == "SUBQUERY":
            _refuse(
                expression,
                f"there is a query in it{_place(expression, part.get('query_location'))}, and only columns may be",
            )
        if str(part.get("function_name", "")).lower() in _OUTSIDE:
            name = part["function_name"]
            _refuse(
                expression,
                f"the function {name}{_place(expression, part.get('query_location'))} is not about a message",
            )
    return terms[0]


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a tree of JSON."""
    waiting = [tree]
    while waiting:
        part: Any = waiting.pop()
        if isinstance(part, dict):
            yield part  # pyright: ignore[reportUnknownVariableType]
            waiting += part.values()  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        elif isinstance(part, list):
            waiting += part  # pyright: ignore[reportUnknownArgumentType]


def _reason(error: duckdb.Error, tree: Any, table: pa.Table, expression: str) -> str:
    missing = _NO_COLUMN.search(str(error))
    if missing is None:
        return _shown(error)
    name = missing[1]
    places = [part["query_location"] for part in _parts(tree) if part.get("column_names", [None])[0] == name]
    columns = [*table.column_names, _BODY_JSON]
    near = difflib.get_close_matches(name.lower(), columns, n=1)
    advice = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(columns)}."
    return f"there is no column {printable(name[:_SHOWN])!r}{_place(expression, min(places, default=None))}; {advice}"


def _place(expression: str, position: Any) -> str:
    # DuckDB counts bytes of the parsed text from 0; users count characters of their text from 1.
    try:
        before = expression.encode()[: int(position) - len(_SELECT)]
    except (TypeError, ValueError):
        return ""
    return f" at character {len(before.decode(errors='ignore')) + 1}"


def _shown(reason: object) -> str:
    # DuckDB quotes values that it cannot convert, and they come from messages.
    return printable(" ".join(str(reason).split())[:_SHOWN_REASON])


def _refuse(expression: str, why: str) -> NoReturn:
    raise ConfigurationError(f"The expression {expression[:_SHOWN]!r} cannot be used: {why}") from None
