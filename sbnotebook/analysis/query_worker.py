"""Evaluate expressions, in a process of its own with limits of time and memory.

:mod:`sbnotebook.analysis.query` starts it. DuckDB's own limits do not hold for a single value, such
as a long list, and DuckDB crashes on JSON that is nested deeply enough, which a sender chooses. Here the operating
system holds the limits, and a crash ends this process and not the notebook's kernel.

A request is a line of JSON and a table as a stream of Arrow; an answer is a line of JSON. So that it starts quickly,
this module imports nothing else of sbnotebook, and hides numpy and pandas from DuckDB, which would import them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NoReturn, TypedDict, cast

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["BODY", "BODY_JSON", "INDEX", "READY", "Answer", "Found", "Kind", "Request", "answer_requests", "work"]

INDEX: Final = "row_index_"
"""The column that numbers the rows."""
READY: Final = b"ready\n"
"""The first line that the process writes."""
BODY: Final = "body_text"
BODY_JSON: Final = "body_json"
"""The column of bodies that are JSON. The table has flags in it: the bodies that DuckDB may parse."""
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # More threads keep more memory, of which the process has little.
    "threads": "1",
}
_MOST_NAME: Final = 200
_MOST_REASON: Final = 500
# A body that is not JSON must not fail the expression for all the others.
_COLUMNS: Final = f"* REPLACE (CASE WHEN {BODY_JSON} THEN TRY_CAST({BODY} AS JSON) END AS {BODY_JSON})"
_SELECT: Final = "SELECT "
_CLAUSES: Final = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")
_OUTSIDE: Final = frozenset(
    {
        *("current_setting", "getenv", "getvariable", "query", "query_table"),
        *("current_connection_id", "current_database", "current_query", "current_query_id", "current_schema"),
        *("current_schemas", "current_transaction_id", "in_search_path", "txid_current"),
        *("nextval", "currval", "setval", "setseed", "sleep_ms", "pg_sleep", "write_log", "stats", "vector_type"),
        # These read a query from a text, and plan it.
        *("json_serialize_plan", "json_serialize_sql", "json_deserialize_sql", "json_execute_serialized_sql"),
    }
)
"""Functions that do or read something else than the message."""
_ROW_MAKERS: Final = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree"})
"""Functions that give rows, and read nothing else."""
_MOST_RESULT: Final = 256 * 1024 * 1024
"""Bytes of the result of a query."""
_ONE_SELECT: Final = "it must be one SELECT, such as SELECT subject, count(*) FROM messages GROUP BY subject"
_NUMBER: Final = "sequence_number"
_POSITIONS: Final = frozenset({"STAR", "POSITIONAL_REFERENCE"})
"""Parts of an expression that need all columns in their places."""
_WITH_VALUES: Final = frozenset({"COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"})
_EQUAL: Final = frozenset(
    {
        *("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_IN", "COMPARE_NOT_IN"),
        *("COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"),
    }
)
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "//", "%", "sum", "avg"})
_OF_TEXTS: Final = frozenset(
    {
        *("~~", "!~~", "~~*", "!~~*", "~~~", "lower", "upper", "length", "len", "trim", "contains", "starts_with"),
        *(
            "ends_with",
            "prefix",
            "suffix",
            "substring",
            "substr",
            "left",
            "right",
            "regexp_matches",
            "regexp_full_match",
        ),
        *("concat", "replace", "strpos", "instr"),
    }
)
"""Functions of texts, of which an argument may be a value in JSON."""
_TEXT_TYPES: Final = frozenset({"varchar", "text", "string"})
_OF_TRUTHS: Final = frozenset({"OPERATOR_NOT", "CONJUNCTION_AND", "CONJUNCTION_OR"})
_EXACT: Final = 2.0**53
"""Larger whole numbers are not exact as DOUBLE."""
_MOST_WHOLE: Final = 1e22
"""Smaller ones are exact as DECIMAL(38, 15)."""
_LEAST, _MOST = "-99999999999999999999999.0", "99999999999999999999999.0"
_CASTS: Final = {
    "text": "{0}",
    "number": "try_cast({0} AS DOUBLE)",
    "whole": "coalesce(try_cast({0} AS DECIMAL(38, 15)), CASE WHEN try_cast({0} AS DOUBLE) > 0 THEN "
    f"{_MOST} WHEN try_cast({{0}} AS DOUBLE) < 0 THEN {_LEAST} END)",
    "truth": "(CASE {0} WHEN 'true' THEN true WHEN 'false' THEN false END)",
}
"""SQL that converts the text of a value in JSON, by the kind of the values beside it. Whole numbers stay exact below
1e22; a larger number in JSON becomes the largest DECIMAL, so that it is still above all of them."""
_NO_COLUMN: Final = re.compile(r"Referenced (?:column|table) \"([^\"]+)\" not found")
_ADVICE: Final = " You might need to add explicit type casts."
_KIND: Final = re.compile(r"^\w+ Error: ")
_TRUTHS: Final = frozenset({"BOOLEAN", "NULL", '"NULL"', "SQLNULL"})


Kind = Literal["expression", "check", "query"]


class Request(TypedDict):
    """Is sent before a table."""

    expression: str
    kind: Kind
    """``expression`` for one that is true or false of a message; ``query`` for one over the table ``messages``, and
    ``check`` for the columns that a query needs."""
    seconds: float
    """Until this process ends itself."""


class Found(TypedDict):
    """Which rows an expression is true for."""

    rows: list[int]
    """The values of `INDEX`, ascending."""
    columns: list[str]
    """The columns that the expression needs."""


class Answer(TypedDict, total=False):
    """The answer to a request, with one of these."""

    found: Found
    size: int
    """Bytes of the result of a query, which follows as a stream of Arrow."""
    refused: str
    """Why the expression cannot be used. It may quote messages."""
    unknown: str
    """With ``refused``: the column that does not exist."""
    exhausted: bool
    """The expression needs more memory than the limit; then this process ends."""


class _RefusedError(Exception):
    """The expression cannot be used; the text says why."""


def work(memory: int, *folders: str) -> None:
    """Answer the requests of standard input on standard output, until there are no more.

    Args:
        memory: bytes that a request may take, beside what DuckDB takes at its start.
        folders: where DuckDB and pyarrow are, if they are not in Python's own folders.
    """
    sys.path += folders
    # DuckDB writes a bar of its progress to standard output, which is for answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    kept = {name: value for name, value in os.environ.items() if name == "SYSTEMROOT"}
    os.environ.clear()
    os.environ.update(kept)
    sys.modules.update({"numpy": None, "pandas": None})  # pyright: ignore[reportArgumentType, reportCallIssue]
    import duckdb

    with duckdb.connect(":memory:", config=_CONFIG | {"memory_limit": f"{memory}B"}) as database:
        database.execute("SET TimeZone = 'UTC'")  # the same days and hours on each machine
        database.execute("SET lock_configuration = true")
        _limit_memory(memory)
        answers.write(READY)
        answers.flush()
        answer_requests(database, sys.stdin.buffer, answers)


def _limit_memory(most: int) -> None:
    """Let this process take so many bytes more than it has, where the system has such a limit."""
    try:
        import resource
    except ImportError:  # Windows, where only DuckDB's own limit holds.
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the image of a crash has messages in it
        with open("/proc/self/statm", encoding="ascii") as sizes:  # noqa: PTH123 - Path is slower to import
            taken = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + most, taken + most))


def answer_requests(database: duckdb.DuckDBPyConnection, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until there are no more, or until one has exhausted the memory."""
    import duckdb

    answer: Answer = {}
    while not answer.get("exhausted") and (line := source.readline()):
        request: Request = json.loads(line)
        # A thread in C, which neither a busy DuckDB nor a lost parent holds up.
        faulthandler.dump_traceback_later(request["seconds"], exit=True)
        result = b""
        try:
            messages = _Messages(source)
            if request["kind"] == "expression":
                answer = _answer(database, messages, request["expression"])
            else:
                answer, result = _result(database, messages, request)
            messages.read_rest()
        except (duckdb.OutOfMemoryException, MemoryError):
            answer = {"exhausted": True}
        faulthandler.cancel_dump_traceback_later()
        sink.write(json.dumps(answer).encode() + b"\n" + result)
        sink.flush()


class _Messages:
    """The table of a request. DuckDB reads it as it arrives, so that its size does not count.

    Args:
        source: where the table comes from.

    Attributes:
        schema: that of the table.
    """

    def __init__(self, source: BinaryIO) -> None:
        import pyarrow as pa

        reader: Any = pa.ipc.open_stream(cast("Any", source))
        self.schema: Any = reader.schema
        # At its end it does not ask the reader again, which would read the next request.
        self._arriving: Iterator[Any] = (batch for batch in reader)
        self._is_too_large = False

    def relation(self, database: duckdb.DuckDBPyConnection, *, whole: bool = False) -> duckdb.DuckDBPyRelation:
        """Return the messages, to be read once, or as often as DuckDB wants if the ``whole`` table is in memory."""
        import pyarrow as pa

        batches = pa.RecordBatchReader.from_batches(self.schema, self._read())
        rows = database.from_arrow(batches.read_all() if whole else batches)
        return rows.project(_COLUMNS) if BODY_JSON in self.schema.names else rows

    def read_rest(self) -> None:
        """Read what an expression with a fault has left.

        Raises:
            MemoryError: there is too little memory for the table; DuckDB says only that it could not read it.
        """
        if self._is_too_large:
            raise MemoryError
        for _ in self._arriving:
            pass

    def _read(self) -> Iterator[Any]:
        try:
            for batch in self._arriving:  # noqa: UP028 - `yield from` would end it when DuckDB stops to read
                yield batch
        except MemoryError:
            self._is_too_large = True
            raise


def _answer(database: duckdb.DuckDBPyConnection, messages: _Messages, expression: str) -> Answer:
    import duckdb

    tree = None
    try:
        tree = _parsed(database, expression)
        rows = messages.relation(database)
        meant = _as_meant(expression, tree, messages.schema)
        kind = str(rows.project(meant).types[0])
        if kind not in _TRUTHS:
            _refuse(f"it gives a {kind}, and not true or false: compare it with something")
        found = rows.filter(meant).project(INDEX).fetchall()
    except _RefusedError as refused:
        return {"refused": str(refused)}
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        return _reason(error, tree, expression)
    return {"found": {"rows": sorted(index for (index,) in found), "columns": _needed(tree, messages.schema)}}


def _result(database: duckdb.DuckDBPyConnection, messages: _Messages, request: Request) -> tuple[Answer, bytes]:
    """Run a query over the table ``messages``, or only tell the columns that it needs."""
    import duckdb
    import pyarrow as pa

    query, tree = request["expression"], None
    try:
        tree = _parsed_query(database, query)
        rows = messages.relation(database, whole=True)
        found: Any = rows.query("messages", _as_meant(query, tree, messages.schema))
        if request["kind"] == "check":
            columns = [*_needed(tree, messages.schema), _NUMBER]  # a table without columns has no rows
            return {"found": {"rows": [], "columns": list(dict.fromkeys(columns))}}, b""
        result: Any = found.to_arrow_table()
    except _RefusedError as refused:
        return {"refused": str(refused)}, b""
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        return _reason(error, tree, query), b""
    if result.nbytes > _MOST_RESULT:
        return {"refused": f"its result has more than {_MOST_RESULT // 2**20} MB: select less"}, b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.schema) as stream:
        stream.write_table(result)
    data = sink.getvalue().to_pybytes()
    return {"size": len(data)}, data


def _described(database: duckdb.DuckDBPyConnection, before: str, text: str) -> list[Any]:
    """Parse statements with DuckDB, which describes them as JSON without running them.

    Args:
        database: parses them.
        before: precedes the text, as many characters as ``SELECT`` and a space.
        text: is shown in errors.
    """
    import duckdb

    try:
        [(described,)] = database.execute("SELECT json_serialize_sql($1::VARCHAR)", [before + text]).fetchall()
        answer: Any = json.loads(described)
    except (RecursionError, UnicodeError, duckdb.Error) as error:
        _refuse(f"it cannot be parsed: {_shown(error)}")
    if answer.get("error_type") == "not implemented":
        _refuse(_ONE_SELECT)
    if answer.get("error"):
        _refuse(f"{_shown(answer.get('error_message'))}{_place(text, answer.get('position'))}")
    return answer["statements"]


def _parsed_query(database: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Parse one query with DuckDB, and refuse all tables but ``messages``."""
    statements = _described(database, " " * len(_SELECT), query)
    if len(statements) != 1:
        _refuse(_ONE_SELECT)
    node = statements[0]["node"]
    parts = list(_parts(node))
    own = {"messages"} | {str(each.get("key")).lower() for part in parts for each in _named_queries(part)}
    for part in parts:
        place = _place(query, part.get("query_location"))
        name = str(part.get("function_name", "")).lower()
        if name in _OUTSIDE:
            _refuse(f"the function {name}{place} is not about messages")
        if part.get("type") == "TABLE_FUNCTION" and part["function"]["function_name"].lower() not in _ROW_MAKERS:
            _refuse(f"the table function {part['function']['function_name']} is not about messages")
        if part.get("type") == "BASE_TABLE" and (part.get("schema_name") or part["table_name"].lower() not in own):
            _refuse(f"there is no table {part['table_name'][:_MOST_NAME]!r}: the only one is messages")
    return node


def _named_queries(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the queries that ``WITH`` names in one part of a query."""
    names: dict[str, Any] = part.get("cte_map") or {}
    return names.get("map", [])


def _parsed(database: duckdb.DuckDBPyConnection, expression: str) -> Any:
    """Parse one expression with DuckDB, and refuse queries in it."""
    # It must be one term, without clauses or tables.
    statements = _described(database, _SELECT, expression)
    node: Any = statements[0]["node"] if len(statements) == 1 else {}
    terms: Any = node.get("select_list", ())
    if len(terms) != 1 or any(node.get(clause) for clause in _CLAUSES) or node["from_table"]["type"] != "EMPTY":
        _refuse("it must be one expression that is true or false of a message")
    # No part of it may be a query, or a function that does or reads something else.
    for part in _parts(terms[0]):
        place = _place(expression, part.get("query_location"))
        if part.get("class") == "SUBQUERY":
            _refuse(f"there is a query in it{place}, and only columns may be")
        if str(part.get("function_name", "")).lower() in _OUTSIDE:
            _refuse(f"the function {part['function_name']}{place} is not about a message")
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


# ---------------------------------------------------------------- values in JSON
# DuckDB reads the text in body_json.carrier = 'UA' as JSON, takes a JSON null for a value, and compares no text of ->>
# with a number. So a value in a body becomes a number beside numbers, true or false beside those, and otherwise a text,
# or NULL.


def _as_meant(expression: str, tree: Any, schema: pa.Schema) -> str:
    """Return an expression in which values in JSON have the type that those beside them have."""
    import pyarrow as pa

    columns: Any = schema
    kinds: dict[str, str] = {column.name: "text" for column in columns if pa.types.is_string(column.type)}
    kinds |= {column.name: "whole" for column in columns if pa.types.is_integer(column.type)}
    meant: dict[tuple[int, int], str] = {}
    for part in _parts(tree):
        values = [value for value in _compared(part) if _is_in_json(value)]
        cast = _cast_of(part, kinds)
        for value in values if cast else ():
            start, end = _span(value)
            path = _path(value)
            text = expression.encode()[start:end].decode() if path is None else f"({BODY_JSON}->>'{path}')"
            meant[start, end] = _CASTS[cast].format(text)
    made, place = b"", 0
    for (start, end), text in sorted(meant.items(), key=lambda item: (item[0][0], -item[0][1])):
        if start >= place:  # otherwise a part of the one before
            made += expression.encode()[place:start] + text.encode()
            place = end
    return (made + expression.encode()[place:]).decode()


def _cast_of(part: dict[str, Any], columns: dict[str, str]) -> str:
    """Return what the values in JSON become that one part of an expression compares or computes with; empty: nothing.

    Args:
        part: of the expression.
        columns: the kind of each column of texts or whole numbers.
    """
    kind, name = part.get("type"), str(part.get("function_name", "")).lower()
    others = {_kind_of(value, columns) for value in _compared(part) if not _is_in_json(value)} - {"null"}
    if kind in _OF_TRUTHS or _cast_type(part) == "boolean" or others == {"truth"}:
        return "truth"
    if name in _OF_TEXTS or (name not in _ARITHMETIC and others <= {"text"}):
        return "text"
    if not others <= {"whole", "number", "large"}:
        return ""
    if "large" in others:
        return "text" if kind in _EQUAL else "number"  # the same number has the same text
    return "number" if name in _ARITHMETIC or "number" in others else "whole"


def _compared(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values that one part of an expression compares or computes with."""
    kind, name = part.get("type"), str(part.get("function_name", "")).lower()
    if part.get("class") == "COMPARISON":
        return [part["left"], part["right"]]
    if part.get("class") == "BETWEEN":
        return [part["input"], part["lower"], part["upper"]]
    if kind in _WITH_VALUES:
        return part["children"]
    if name in _ARITHMETIC or name in _OF_TEXTS:
        return [argument["expression"] for argument in part.get("arguments", ())]
    if kind in _OF_TRUTHS:
        return part["children"]
    if _cast_type(part) in {"boolean", *_TEXT_TYPES}:
        return [part["child"]]
    return []


def _cast_type(part: dict[str, Any]) -> str:
    """Return the type to which one part of an expression casts, in lower case; empty where it does not."""
    is_cast = part.get("type") == "OPERATOR_CAST"
    return str(part.get("type_expr", {}).get("type_name")).lower() if is_cast else ""


def _is_in_json(part: dict[str, Any]) -> bool:
    return _path(part) is not None or part.get("function_name") in ("->>", "json_extract_string")


def _path(part: dict[str, Any]) -> str | None:
    """Return the JSON path of ``body_json.a.b`` or ``body_json['a']``; None for other parts."""
    keys: list[str] = []
    while part.get("type") == "ARRAY_EXTRACT":
        part, key = part["children"]
        if key.get("literal", {}).get("kind") != "STRING":
            return None
        keys.insert(0, key["literal"]["text"])
    names = [str(name) for name in part.get("column_names", ("",))]
    keys = [*names[1:], *keys]
    if names[0].lower() != BODY_JSON or not keys or any(character in '"\\\0' for key in keys for character in key):
        return None
    return "$" + "".join(f'."{key}"' for key in keys).replace("'", "''")


def _kind_of(part: dict[str, Any], columns: dict[str, str]) -> str:
    literal = part.get("literal", {})
    match literal.get("kind"):
        case "STRING":
            return "text"
        case "BOOLEAN":
            return "truth"
        case "NULL_LITERAL":
            return "null"
        case "INTEGER":
            return "whole" if abs(float(literal["text"])) < _MOST_WHOLE else "large"
        case "NUMERIC":
            return "number" if abs(float(literal["text"])) < _EXACT else "large"
        case _:
            pass
    if part.get("function_name") in _ARITHMETIC:
        terms = {_kind_of(argument["expression"], columns) for argument in part["arguments"]}
        return "number" if terms <= {"whole", "number", "large"} else "other"
    return columns.get(part.get("column_names", [""])[-1], "other")


def _span(part: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes of an expression that are a part of it."""
    start: int = part["query_location"] - len(_SELECT)
    end = start + part["query_location_length"]
    return (_span(part["children"][0])[0] if part.get("type") == "ARRAY_EXTRACT" else start), end


def _needed(tree: Any, schema: pa.Schema) -> list[str]:
    """Return the columns of a table that an expression needs."""
    parts = list(_parts(tree))
    if any(part.get("class") in _POSITIONS for part in parts):
        return schema.names
    named = {str(name).lower() for part in parts for name in part.get("column_names", ())}
    if BODY_JSON in named:
        named.add(BODY)
    return [column for column in schema.names if column in named or column == INDEX]


def _reason(error: duckdb.Error, tree: Any, expression: str) -> Answer:
    missing = _NO_COLUMN.search(str(error))
    if missing is None:
        return {"refused": _shown(error)}
    name = missing[1]
    places = [part["query_location"] for part in _parts(tree) if part.get("column_names", [None])[0] == name]
    place = _place(expression, min(places, default=None))
    return {"refused": f"there is no column {name[:_MOST_NAME]!r}{place}", "unknown": name}


def _place(expression: str, position: Any) -> str:
    # DuckDB counts bytes of the parsed text from 0; users count characters of their text from 1.
    try:
        before = expression.encode()[: int(position) - len(_SELECT)]
    except (TypeError, ValueError):
        return ""
    return f" at character {len(before.decode(errors='ignore')) + 1}"


def _shown(reason: object) -> str:
    # DuckDB adds a line of its own query, which is not what the user wrote, or a page of functions.
    text = str(reason).partition("\nLINE ")[0].partition("Candidate functions:")[0].replace(_ADVICE, "")
    return _KIND.sub("", " ".join(text.split()))[:_MOST_REASON]


def _refuse(why: str) -> NoReturn:
    raise _RefusedError(why)


if __name__ == "__main__":
    work(int(sys.argv[1]), *sys.argv[2:])
