"""Evaluate expressions, in a process of its own with limits of time and memory.

:mod:`sbnotebook.analysis.query` starts it. DuckDB's own limits do not hold for a single value, such
as a long list, and DuckDB crashes on JSON that is nested deeply enough, which a sender chooses. Here the operating
system holds the limits, and a crash ends this process and not the notebook's kernel.

A request is a line of JSON and a table as a stream of Arrow; an answer is a line of JSON. So that it starts quickly,
this module imports little of sbnotebook, and hides numpy and pandas from DuckDB, which would import them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NoReturn, TypedDict, TypeVar, cast

from sbnotebook.analysis.json_values import (
    BODY_JSON,
    Paths,
    Refused,
    kind_of_all,
    kinds_query,
    parts_of,
    without_limits,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


INDEX: Final = "row_index_"
"""The column that numbers the rows."""
READY: Final = b"ready\n"
"""The first line that the process writes."""
BODY: Final = "body_text"
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # More threads keep more memory, of which the process has little.
    "threads": "1",
}
_MOST_NAME: Final = 200
# The table has flags in body_json: the bodies that DuckDB may parse. A body that is not JSON must not fail the others.
_COLUMNS: Final = f"* REPLACE (CASE WHEN {BODY_JSON} THEN TRY_CAST({BODY} AS JSON) END AS {BODY_JSON})"
_SELECT: Final = "SELECT "
_BLANKS: Final = " " * len(_SELECT)
"""Before a query, so that places in it are counted as in an expression."""
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
_POSITIONS: Final = frozenset({"STAR", "POSITIONAL_REFERENCE"})
"""Parts of an expression that need all columns in their places."""
_MOST_GROUPS: Final = 64
"""Messages whose values have other kinds together are evaluated by themselves; of more kinds together, all at once."""
_TOGETHER: Final = 32 * 1024 * 1024
"""Bytes of the batches whose values are looked at together."""
_FROM: Final = " FROM messages"
_PLACE: Final = re.compile(r"\[(\d+),(\d+)\]")
_NO_COLUMN: Final = re.compile(r"Referenced (?:column|table) \"([^\"]+)\" not found")
_KIND: Final = re.compile(r"^\w+ Error: ")
_TRUTHS: Final = frozenset({"BOOLEAN", "NULL", '"NULL"', "SQLNULL"})


T = TypeVar("T")
Kind = Literal["expression", "check", "query"]


class Request(TypedDict):
    expression: str
    kind: Kind
    """``expression`` for one that is true or false of a message; ``query`` for one over the table ``messages``, and
    ``check`` for the columns that a query needs."""
    seconds: float
    """Until this process ends itself."""
    others: list[str]
    """The names of further tables of a query, which come before the table of messages."""


class Answer(TypedDict, total=False):
    columns: list[str]
    """The columns that the expression or query needs."""
    rows: list[int]
    """For an expression: the values of `INDEX` of the rows for which it is true, ascending."""
    tables: list[str]
    """The tables that a query names."""
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


def work(memory: int) -> None:
    """Answer the requests of standard input on standard output, until there are no more."""
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
        database.execute("SET errors_as_json = true")  # with the place of the fault
        database.execute("SET lock_configuration = true")
        _limit_memory(memory)
        answers.write(READY)
        answers.flush()
        answer_requests(database, sys.stdin.buffer, answers)


def _limit_memory(most: int) -> None:
    """Limit the bytes that this process may take beyond those that it has, where the system can."""
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
    import pyarrow as pa

    answer: Answer = {}
    while not answer.get("exhausted") and (line := source.readline()):
        request: Request = json.loads(line)
        # A thread in C, which neither a busy DuckDB nor a lost parent holds up.
        faulthandler.dump_traceback_later(request["seconds"], exit=True)
        result = b""
        try:
            others = {name: pa.ipc.open_stream(cast("Any", source)).read_all() for name in request["others"]}
            reader: Any = pa.ipc.open_stream(cast("Any", source))
            # At its end it does not ask the reader again, which would read the next request.
            messages = (batch for batch in reader)
            with _registered(database, others):
                answer, result = _answered(database, reader.schema, messages, request)
            for _ in messages:  # what an expression with a fault has left
                pass
        except (duckdb.OutOfMemoryException, MemoryError):
            answer = {"exhausted": True}
            others = messages = None  # the answer needs memory, too
        faulthandler.cancel_dump_traceback_later()
        sink.write(json.dumps(answer).encode() + b"\n" + result)
        sink.flush()


@contextlib.contextmanager
def _registered(database: duckdb.DuckDBPyConnection, tables: dict[str, Any]) -> Generator[None]:
    for name, table in tables.items():
        database.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            database.unregister(name)


def _parts(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the batches of a table as they arrive, some together: each query takes a moment to plan."""
    together, size = list[Any](), 0
    for batch in batches:
        if size >= _TOGETHER:
            yield together
            together, size = [], 0
        together.append(batch)
        size += batch.nbytes
    yield together  # none of an empty table, for which an expression is checked, too


@contextlib.contextmanager
def _messages(database: duckdb.DuckDBPyConnection, table: Any) -> Generator[None]:
    # Serialized queries do not see a table that is registered.
    rows = database.from_arrow(table)
    (rows.project(_COLUMNS) if BODY_JSON in table.schema.names else rows).create_view("messages")
    try:
        yield
    finally:
        database.execute("DROP VIEW messages")


def _answered(
    database: duckdb.DuckDBPyConnection, schema: pa.Schema, messages: Iterable[Any], request: Request
) -> tuple[Answer, bytes]:
    import duckdb

    try:
        if request["kind"] == "expression":
            text = _prepared(database, _SELECT, request["expression"], schema, frozenset[str]())
            found = [row for part in _parts(messages) for row in _true_in(database, schema, part, text)]
            return {"rows": sorted(found), "columns": text.columns}, b""
        return _result(database, schema, messages, request)
    except _RefusedError as refused:
        return {"refused": str(refused)}, b""
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        return _reason(database, error, request), b""


def _true_in(database: duckdb.DuckDBPyConnection, schema: pa.Schema, batches: list[Any], text: _Text) -> Iterator[int]:
    """Yield the values of `INDEX` of the rows for which an expression is true.

    The kinds of values differ between messages, and an expression is about one message. So it is evaluated for all
    messages whose values have the same kinds.
    """
    import pyarrow as pa

    def rows_where(rows: Any, statement: str) -> list[tuple[int]]:
        expression = statement.removeprefix(_SELECT).removesuffix(_FROM)
        with _messages(database, rows):
            return database.execute(f"{_SELECT}{INDEX}{_FROM} WHERE {expression}").fetchall()

    table: Any = pa.Table.from_batches(batches, schema)
    with _messages(database, table):
        groups = _by_kinds(database, text.paths.paths)
    for kinds, indexes in groups.items():
        truth = text.fit(kinds)
        if truth in _TRUTHS:
            rows = _taken(batches, indexes) if indexes else table
            yield from [index for (index,) in text.run(kinds, partial(rows_where, rows))]
        elif len(groups) == 1 and (batches or not text.paths.paths):
            _refuse(f"it gives a {truth}, and not true or false: compare it with something")


def _taken(batches: list[Any], indexes: list[int]) -> Any:
    """Return some rows of batches, ascending. The batches stay as small as they are, and so the memory of DuckDB."""
    import pyarrow as pa

    taken: list[Any] = []
    for batch in batches:
        first = batch[INDEX][0].as_py()
        own = indexes[bisect_left(indexes, first) : bisect_left(indexes, first + len(batch))]
        taken.append(batch.take(pa.array([index - first for index in own], pa.int64())))
    return pa.Table.from_batches(taken)


def _by_kinds(database: duckdb.DuckDBPyConnection, paths: list[str]) -> dict[tuple[str, ...], list[int]]:
    """Return the kinds of the values of some paths, each with the rows that have them; none stands for all rows."""
    found = database.execute(kinds_query(paths, "messages", INDEX)).fetchall() if paths else []
    of_paths = [{*each} - {None} for each in list(zip(*found, strict=True))[1:]] or [set[str]() for _ in paths]
    all_kinds = tuple(map(kind_of_all, of_paths))
    mixed = [place for place, each in enumerate(of_paths) if len(each) > 1]
    groups: dict[tuple[str, ...], list[int]] = {}
    for indexes, *kinds in found:
        own = tuple(kind_of_all([kinds[n]]) if n in mixed else kind for n, kind in enumerate(all_kinds))
        groups.setdefault(own, []).extend(indexes)
    if not 1 <= len(groups) <= _MOST_GROUPS:
        return {all_kinds: []}
    return {kinds: sorted(own) if len(groups) > 1 else [] for kinds, own in groups.items()}


class _Text:
    """An expression, or a query, with values of their own types in the places of the paths into JSON."""

    def __init__(
        self, database: duckdb.DuckDBPyConnection, before: str, text: str, schema: Any, known: frozenset[str]
    ) -> None:
        import pyarrow as pa

        self._database = database
        self._none: Any = pa.Table.from_batches([], schema)
        self._statement = _parsed(database, before, text, known)
        parts = list(parts_of(self._statement["node"]))
        self.columns = _needed(parts, schema)
        self.tables = sorted(known & {str(part.get("table_name")).lower() for part in parts})
        if before == _SELECT:
            (messages,) = _described(database, "", f"{_SELECT}1{_FROM}")
            self._statement["node"]["from_table"] = messages["node"]["from_table"]
            self._bound = self._statement
        else:  # Columns may have the same name only in a subquery.
            (self._bound,) = _described(database, "", f"{_SELECT}1 FROM ({_SELECT}1)")
            self._bound["node"]["from_table"]["subquery"] = self._statement
        self._kind, self._types = "", dict[tuple[str, ...], str]()
        self.paths = Paths(self._statement["node"], self._parse, self._text_of if before != _SELECT else None)

    def fit(self, kinds: tuple[str, ...]) -> str:
        self.paths.fit(kinds, self._bind)
        if kinds not in self._types:
            self._bind()
            self._types[kinds] = self._kind
        return self._types[kinds]

    def run(self, kinds: tuple[str, ...], evaluate: Callable[[str], T]) -> T:
        """Return the result of the SQL for kinds that fit; of fractions where whole numbers become too large."""
        import duckdb

        try:
            return evaluate(self._sql(self._statement))
        except duckdb.OutOfRangeException:
            if without_limits(kinds) == kinds:
                raise
        self.fit(without_limits(kinds))
        return evaluate(self._sql(self._statement))

    def _bind(self) -> Refused | None:
        import duckdb

        described = json.dumps({"error": False, "statements": [self._bound]})
        try:
            with _messages(self._database, self._none):
                rows: Any = self._database.execute("FROM json_execute_serialized_sql($1::VARCHAR)", [described])
                self._kind = str(rows.description[0][1])
                rows.fetchall()
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as error:
            told = _told(error)
            if told.get("error_subtype") in {"COLUMN_NOT_FOUND", "MISSING_ENTRY"}:
                raise
            place = _PLACE.fullmatch(str(told.get("location")))
            return Refused((int(place[1]), int(place[2])) if place else None, error)
        return None

    def _parse(self, expression: str) -> Any:
        (statement,) = _described(self._database, "", _SELECT + expression)
        return statement["node"]["select_list"][0]

    def _text_of(self, node: Any) -> str:
        (statement,) = _described(self._database, "", f"{_SELECT}1")
        statement["node"]["select_list"] = [node]
        return self._sql(statement).removeprefix(_SELECT)

    def _sql(self, statement: Any) -> str:
        described = json.dumps({"error": False, "statements": [statement]})
        [(text,)] = self._database.execute("SELECT json_deserialize_sql($1::JSON)", [described]).fetchall()
        return text


@lru_cache(maxsize=8)
def _prepared(
    database: duckdb.DuckDBPyConnection, before: str, text: str, schema: pa.Schema, known: frozenset[str]
) -> _Text:
    """Prepare a text once for the tables of a search, which come page by page; others than known ones are refused."""
    return _Text(database, before, text, schema, known)


def _result(
    database: duckdb.DuckDBPyConnection, schema: pa.Schema, messages: Iterable[Any], request: Request
) -> tuple[Answer, bytes]:
    """Run a query over the table ``messages`` and others, or only tell the tables and columns that it needs."""
    import pyarrow as pa

    query, is_check = request["expression"], request["kind"] == "check"
    text = _prepared(database, _BLANKS, query, schema, frozenset[str](("messages", *request["others"])))
    rows: Any = pa.Table.from_batches([*messages], schema)
    kinds: tuple[str, ...] = ()
    if text.paths.paths:
        with _messages(database, rows):
            found = database.execute(kinds_query(text.paths.paths, "messages")).fetchall()
        kinds = tuple(kind_of_all(each or ()) for each in found[0])
        text.fit(kinds)
    result: Any = text.run(kinds, lambda sql: _table_of(database, rows, sql if kinds else query, is_check=is_check))
    if is_check:
        # A table without columns has no rows.
        return {"columns": list(dict.fromkeys([*text.columns, "sequence_number"])), "tables": text.tables}, b""
    if result.nbytes > _MOST_RESULT:
        _refuse(f"its result has more than {_MOST_RESULT // 2**20} MB: select less")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.schema) as stream:
        stream.write_table(result)
    data = sink.getvalue().to_pybytes()
    return {"size": len(data)}, data


def _table_of(database: duckdb.DuckDBPyConnection, rows: Any, query: str, *, is_check: bool) -> Any:
    import pyarrow as pa

    with _messages(database, rows):
        found: Any = database.query(query)  # it is bound here
        if is_check:
            return None
        table: Any = found.to_arrow_table()
    for place, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):  # such as a sum of whole numbers
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(place, field.name, table[place].cast(pa.int64()))
    return table


def _described(database: duckdb.DuckDBPyConnection, before: str, text: str) -> list[Any]:
    """Parse statements with DuckDB, which describes them as JSON without running them."""
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


def _parsed(database: duckdb.DuckDBPyConnection, before: str, text: str, known: frozenset[str]) -> Any:
    statements, is_expression = _described(database, before, text), before == _SELECT
    node: Any = statements[0]["node"] if len(statements) == 1 else {}
    if is_expression:
        # It must be one term, without clauses or tables.
        clauses = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")
        is_more = len(node.get("select_list", ())) != 1 or any(map(node.get, clauses))
        if is_more or node["from_table"]["type"] != "EMPTY":
            _refuse("it must be one expression that is true or false of a message")
    elif not node:
        _refuse(_ONE_SELECT)
    parts = list(parts_of(node))
    queries: list[Any] = [part.get("cte_map") or {} for part in parts]
    own = known | {str(each.get("key")).lower() for query in queries for each in query.get("map", ())}
    for part in parts:
        place, name = _place(text, part.get("query_location")), str(part.get("function_name", ""))
        if name.lower() in _OUTSIDE:
            _refuse(f"the function {name}{place} is not about {'a message' if is_expression else 'messages'}")
        if is_expression and part.get("class") == "SUBQUERY":
            _refuse(f"there is a query in it{place}, and only columns may be")
        _check_source(part, own, known)
    return statements[0]


def _check_source(part: Any, own: frozenset[str], known: frozenset[str]) -> None:
    kind, name = part.get("type"), str(part.get("table_name", ""))
    if kind == "TABLE_FUNCTION" and part["function"]["function_name"].lower() not in _ROW_MAKERS:
        _refuse(f"the table function {part['function']['function_name']} is not about messages")
    if kind == "BASE_TABLE" and (part.get("schema_name") or name.lower() not in own):
        there = f"there are {', '.join(sorted(known))}" if len(known) > 1 else "the only one is messages"
        _refuse(f"there is no table {name[:_MOST_NAME]!r}: {there}")


def _needed(parts: list[Any], schema: pa.Schema) -> list[str]:
    if any(part.get("class") in _POSITIONS for part in parts):
        return schema.names
    named = {str(name).lower() for part in parts for name in part.get("column_names", ())}
    if BODY_JSON in named:
        named.add(BODY)
    return [column for column in schema.names if column in named or column == INDEX]


def _reason(database: duckdb.DuckDBPyConnection, error: duckdb.Error, request: Request) -> Answer:
    missing = _NO_COLUMN.search(_told(error).get("exception_message", ""))
    if missing is None:
        return {"refused": _shown(error)}
    name, text = missing[1], request["expression"]
    tree = _described(database, _SELECT if request["kind"] == "expression" else _BLANKS, text)
    places = [part["query_location"] for part in parts_of(tree) if part.get("column_names", [None])[0] == name]
    place = _place(text, min(places, default=None))
    return {"refused": f"there is no column {name[:_MOST_NAME]!r}{place}", "unknown": name}


def _place(expression: str, position: Any) -> str:
    # DuckDB counts bytes of the parsed text from 0; users count characters of their text from 1.
    try:
        before = expression.encode()[: int(position) - len(_SELECT)]
    except (TypeError, ValueError):
        return ""
    return f" at character {len(before.decode(errors='ignore')) + 1}"


def _told(error: Exception) -> dict[str, Any]:
    try:
        return json.loads(_KIND.sub("", str(error)))
    except ValueError:
        return {"exception_message": str(error)}


def _shown(reason: object) -> str:
    # DuckDB adds a line of its own query, which is not what the user wrote, or a page of functions.
    text = str(_told(reason)["exception_message"] if isinstance(reason, Exception) else reason)
    text = text.rpartition("Error: Conversion")[2].partition("\nLINE ")[0]
    text = text.partition("Candidate functions:")[0].replace(" You might need to add explicit type casts.", "")
    return _KIND.sub("", " ".join(text.split()))[:500]


def _refuse(why: str) -> NoReturn:
    raise _RefusedError(why)
