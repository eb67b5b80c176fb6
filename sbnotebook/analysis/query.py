"""Filter messages by a SQL boolean expression over the message columns, and run SQL queries over them.

DuckDB parses and evaluates it over Arrow, without access to anything outside. It is one expression about one message:
queries within it are refused, so that it cannot reach another table. DuckDB runs in a process of its own with limits of
time and memory, :mod:`sbnotebook.analysis.query_worker`, because its own limits do not hold for all expressions. The
process stays, so that only the first expression waits for its start.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from itertools import accumulate, chain
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import anyio.to_thread
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.amqp.decoding import LEVELS
from sbnotebook.analysis import query_worker
from sbnotebook.analysis.descriptions import PROPERTIES, TRACE_COLUMNS, trace_columns
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.page_columns import array_of_flags, array_of_numbers
from sbnotebook.analysis.query_worker import BODY, BODY_JSON, INDEX, Answer, Kind, Request
from sbnotebook.analysis.tables import printable
from sbnotebook.errors import ConfigurationError, near_match
from sbnotebook.model import Message
from sbnotebook.model.budget import PARSED_CHARACTERS

if TYPE_CHECKING:
    from numpy.typing import NDArray


M = TypeVar("M", bound=Message)

_kernels: Final[Any] = pc
_MOST_SECONDS: Final = 60.0
_MOST_MEMORY: Final = 10**9
"""Bytes."""
_LONGEST: Final = 20_000
_BATCH: Final = 512 * 1024
"""Bytes of a table that DuckDB evaluates at a time. Each function over JSON takes up to 30 times as many."""
_AHEAD: Final = 2 * _BATCH
"""Bytes that are sent while DuckDB evaluates the batch before, where the system has such pipes."""
_MOST_IDLE: Final = 2
_FIRST_STEP: Final = 250
_LARGEST_STEP: Final = 4_000
"""Messages that are filtered together, twice as many each time, so that few more are read than are wanted."""
_SHOWN: Final = 200
_NO_TABLES: Final[Mapping[str, pa.Table]] = MappingProxyType({})
_NAMES: Final = re.compile(r"\w+")
_BODY: Final = re.compile(r"\bbody\b(?:\.(\w+))?|\bbody_text(?:\.(\w+)|->|\[)", re.IGNORECASE)
"""A body where an expression may mean its text, or a field of its JSON."""
_OLD_NAMES: Final = {
    "label": "subject",
    "properties": "application_properties",
    "user_properties": "application_properties",
}
"""The names of columns in earlier SDKs, and their names here."""
_UNCAST: Final = re.compile(r"Could not convert|Unable to cast|Failed to cast|invalid \w+ field format")

_MOST_BYTES: Final = 4 * PARSED_CHARACTERS
"""A body with more bytes has more characters than are parsed: UTF-8 takes up to four for each."""
_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""The texts of JSON. Possessive, so that a text without an end takes no longer than others."""
_MAYBE_CONSTANTS: Final = r"(?i)(?:^|[:\[,\s-])(?:nan|inf)(?:$|[\]},i\s])"
"""NaN or Infinity, which DuckDB reads, and JSON does not have; perhaps in a text. RE2 reads it, in linear time."""
_CONSTANTS: Final = re.compile(rb"[:\[,\s-](?:nan|inf)|^-?(?:nan|inf)", re.IGNORECASE)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))
_WORK: Final = f"""\
import sys
sys.path += sys.argv[2:]
from {query_worker.__name__} import work
work(int(sys.argv[1]))
"""

_idle: defaultdict[int, list[subprocess.Popen[bytes]]] = defaultdict(list)
"""Processes that wait for requests, by the process that started them: a fork must not use those of its parent."""
_checked: dict[tuple[str, tuple[str, ...]], list[str]] = {}
"""The columns that expressions without a fault need, by the expression and the columns of the table."""
_MOST_CHECKED: Final = 64


def where(messages: Sequence[M], expression: str | None) -> list[M]:
    if expression is None:
        return list(messages)
    return [messages[index] for index in matching(to_arrow(messages), expression)]


def filtered(table: pa.Table, expression: str | None) -> pa.Table:
    if expression is None:
        return table
    chosen = np.zeros(len(table), np.bool_)
    chosen[matching(table, expression)] = True
    return table.filter(array_of_flags(chosen))


async def first_matching(
    tables: AsyncGenerator[pa.Table],
    expression: str | None,
    count: int | None,
    limiter: anyio.CapacityLimiter | None = None,
    columns: pa.Table | None = None,
) -> pa.Table:
    """Collect the first messages for which an expression is true into a table, and read few pages behind them.

    ``columns`` is an empty table with those of the tables, by default the message columns.
    """
    columns = to_arrow(()) if columns is None else columns
    chosen = partial(anyio.to_thread.run_sync, filtered, limiter=limiter)
    found = [await chosen(columns, expression)]
    waiting: list[pa.Table] = []
    step, left = _FIRST_STEP, count
    async with aclosing(tables):
        async for table in tables:
            waiting.append(table)
            if left is not None and sum(map(len, waiting)) >= (left if expression is None else step):
                found.append(await chosen(pa.concat_tables(waiting), expression))
                waiting, step, left = [], min(2 * step, _LARGEST_STEP), left - len(found[-1])
                if left <= 0:
                    break
    if waiting:
        found.append(await chosen(pa.concat_tables(waiting), expression))
    return pa.concat_tables(found).slice(0, count)


def few_at_once() -> anyio.CapacityLimiter:
    """Return a limiter for :func:`first_matching`: of as many evaluations as there are processes that are kept.

    More at the same time would start and end a process for each.
    """
    return anyio.CapacityLimiter(_MOST_IDLE)


def result_of(table: pa.Table, query: str, others: Mapping[str, pa.Table] = _NO_TABLES) -> pa.Table:
    """Run a query over a table of messages, which it knows as ``messages``; the limits of :func:`where` hold."""
    table, deadline = _with_derived(table), time.monotonic() + _MOST_SECONDS
    with _process() as process:
        columns = _checked_query(process, table, query, deadline, others)["columns"]
        _, result = _ask(process, _traced(table, columns).select(columns), query, deadline, "query", others)
    return pa.ipc.open_stream(result).read_all()


def tables_in(query: str, schemas: Mapping[str, pa.Schema]) -> list[str]:
    """Return which tables a query reads, of ``messages`` and others. A query with a fault is refused."""
    others, table = {name: schema.empty_table() for name, schema in schemas.items()}, _with_derived(to_arrow(()))
    with _process() as process:
        return _checked_query(process, table, query, time.monotonic() + _MOST_SECONDS, others)["tables"]


def _checked_query(
    process: subprocess.Popen[bytes], table: pa.Table, query: str, deadline: float, others: Mapping[str, pa.Table]
) -> Mapping[str, Any]:
    query = str(query).strip().removesuffix(";")
    if not query.strip():
        raise ConfigurationError(
            "The query is empty: write one such as SELECT subject, count(*) FROM messages GROUP BY subject."
        )
    if len(query) > _LONGEST:
        _refuse(query, f"it is longer than {_LONGEST:,} characters", "query")
    empty = {name: other.slice(0, 0) for name, other in others.items()}
    return _ask(process, table.slice(0, 0), query, deadline, "check", empty)[0]


def matching(table: pa.Table, expression: str) -> list[int]:
    expression = str(expression)  # an instance of a subclass might not be what it seems
    if not expression.strip():
        raise ConfigurationError("The expression is empty: write a condition such as subject = 'UA', or leave it out.")
    if len(expression) > _LONGEST:
        _refuse(expression, f"it is longer than {_LONGEST:,} characters")
    table = _with_derived(table).append_column(INDEX, array_of_numbers(np.arange(len(table), dtype=np.int64)))
    deadline = time.monotonic() + _MOST_SECONDS
    with _process() as process:
        needed = _needed(process, table, expression, deadline)
        if not len(table):
            return []
        # Pages have few rows.
        found, _ = _ask(process, _traced(table, needed).select(needed).combine_chunks(), expression, deadline)
    return found["rows"]


def _needed(process: subprocess.Popen[bytes], table: pa.Table, expression: str, deadline: float) -> list[str]:
    """Check an expression, once for tables with the same columns, and return the columns that it needs."""
    key = expression, tuple(table.column_names)
    columns = _checked.get(key)
    if columns is None:
        found, _ = _ask(process, table.slice(0, 0), expression, deadline)
        if len(_checked) >= _MOST_CHECKED:
            _checked.clear()
        columns = _checked[key] = found["columns"]
    return columns


def _portions(table: pa.Table, most: int) -> Iterator[pa.Table]:
    if table.nbytes <= most or len(table) <= 1:
        if len(table):
            yield table
        return
    half = len(table) // 2
    yield from _portions(table.slice(0, half), most)
    yield from _portions(table.slice(half), most)


def _with_derived(table: pa.Table) -> pa.Table:
    """Return a table with the columns besides the message columns, not filled yet."""
    if BODY in table.column_names:
        table = table.append_column(BODY_JSON, pa.nulls(len(table), pa.bool_()))
    if PROPERTIES in table.column_names:
        for name in TRACE_COLUMNS:
            table = table.append_column(name, pa.nulls(len(table), pa.string()))
    return table


def _traced(table: pa.Table, needed: Sequence[str]) -> pa.Table:
    if not {*needed} & {*TRACE_COLUMNS}:
        return table
    for name, column in zip(TRACE_COLUMNS, trace_columns(table.column(PROPERTIES)), strict=True):
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _checked_json(table: pa.Table) -> pa.Table:
    """Flag the bodies that DuckDB may parse: it calls itself for each level, and crashes on many.

    The expression is evaluated over the rows before meanwhile.
    """
    if BODY_JSON not in table.column_names:
        return table
    flags = _are_parsable(cast("Any", table[BODY]).combine_chunks())
    return table.set_column(table.column_names.index(BODY_JSON), BODY_JSON, array_of_flags(flags))


def _are_parsable(bodies: Any) -> NDArray[np.bool_]:
    if bodies.nbytes > _MOST_BYTES:  # one body: see _portions
        return np.zeros(len(bodies), np.bool_)
    opening = _kernels.add(_kernels.count_substring(bodies, "{"), _kernels.count_substring(bodies, "["))
    is_long = _kernels.greater(_kernels.binary_length(bodies), PARSED_CHARACTERS)
    is_doubtful = _kernels.or_(_kernels.greater(opening, LEVELS), is_long)
    is_doubtful = _kernels.or_(is_doubtful, _kernels.match_substring_regex(bodies, _MAYBE_CONSTANTS))
    flags = np.ones(len(bodies), np.bool_)
    for place in np.flatnonzero(_kernels.fill_null(is_doubtful, False).to_numpy(zero_copy_only=False)):  # few
        body = bodies[place].as_py()
        flags[place] = len(body) <= PARSED_CHARACTERS and _is_flat(body)
    return flags


def _is_flat(text: str) -> bool:
    """Return whether JSON is not nested too deeply, and has no constants, in time that grows with its length."""
    bare = _TEXTS.sub(b"", text.encode())
    levels = accumulate(array("b", bare.translate(_STEPS, _NOT_BRACKETS)))
    return max(levels, default=0) <= LEVELS and not _CONSTANTS.search(bare)


@contextmanager
def _process() -> Generator[subprocess.Popen[bytes]]:
    """Lend a process that waits for requests, or a new one, and keep it for the next expression."""
    waiting = _idle[os.getpid()]
    process = _take(waiting) or _start()
    try:
        yield process
    except ConfigurationError:  # It has answered, or it has ended.
        raise
    except BaseException:
        _end(process)
        raise
    finally:
        if process.returncode is None and len(waiting) < _MOST_IDLE:
            waiting.append(process)
        else:
            _end(process)


def _take(waiting: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes] | None:
    while True:
        try:
            process = waiting.pop()
        except IndexError:  # Other threads take and give back, too.
            return None
        if process.poll() is None:
            return process
        _end(process)  # The system ended it, such as for want of memory.


def _start() -> subprocess.Popen[bytes]:
    # It finds DuckDB where this process does, but -P keeps it from importing files of the folder it is started in. It
    # gets no interrupts of the notebook, which wait for its answer here.
    modules = map(find_spec, ("sbnotebook", "duckdb", "pyarrow"))
    folders = {str(Path(str(module.origin)).parents[1]) for module in modules if module}
    command = [sys.executable, "-P", "-c", _WORK, str(_MOST_MEMORY), *folders]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pipesize=_AHEAD,
            creationflags=subprocess.CREATE_NO_WINDOW if sys.platform == "win32" else 0,
        )
    except OSError as error:
        raise ConfigurationError(f"Expressions need a process of their own, which did not start: {error}.") from None
    if cast("IO[bytes]", process.stdout).readline() != query_worker.READY:
        _end(process)
        raise ConfigurationError(
            "Expressions need a process of their own, which did not start: see what "
            f"{' '.join(map(quote, command))} prints, and whether there is memory for it."
        )
    return process


@atexit.register
def _end_all() -> None:
    for process in _idle.pop(os.getpid(), ()):
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if not cast("IO[bytes]", process.stdin).closed:
        process.kill()
        process.communicate()


def _ask(
    process: subprocess.Popen[bytes],
    table: pa.Table,
    expression: str,
    deadline: float,
    kind: Kind = "expression",
    others: Mapping[str, pa.Table] = _NO_TABLES,
) -> tuple[Mapping[str, Any], bytes]:
    request: Request = {
        "expression": expression,
        "kind": kind,
        "seconds": max(deadline - time.monotonic(), 0.001),
        "others": [*others],
    }
    source, target = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stdin)
    with suppress(BrokenPipeError):  # It may have answered that it ends.
        target.write(json.dumps(request).encode() + b"\n")
        for other in others.values():
            with pa.ipc.new_stream(cast("Any", target), other.schema) as stream:
                stream.write_table(other)
        with pa.ipc.new_stream(cast("Any", target), table.schema) as stream:
            for portion in _portions(table, _BATCH):
                stream.write_table(_checked_json(portion))
        target.flush()
    line = source.readline()
    answer: Answer = json.loads(line) if line.endswith(b"\n") else {}
    result = source.read(answer.get("size", 0))
    if "refused" in answer:
        why = answer["refused"].rstrip(". ")
        words = {word.lower() for word in _NAMES.findall(expression)}
        read = {name: other.column_names for name, other in others.items() if name in words}
        why += _advice(why, expression, answer.get("unknown"), table.column_names, read)
        _refuse(expression, why, kind)
    if not answer.keys() & {"columns", "size"} or len(result) != answer.get("size", 0):
        _end(process)
        _refuse(expression, _ended(answer, process.returncode, deadline), kind)
    return cast("Mapping[str, Any]", answer), result


def _ended(answer: Answer, code: int, deadline: float) -> str:
    if not answer and time.monotonic() < deadline:
        return f"DuckDB crashed ({code}), as it does on very deep JSON: use body_json, which leaves such bodies out"
    most = f"{_MOST_MEMORY / 10**9:g} GB of memory" if answer else f"{_MOST_SECONDS:.0f} seconds"
    return f"it takes more than {most}: make it simpler, or look at fewer messages"


def _advice(
    why: str, expression: str, unknown: str | None, columns: Sequence[str], others: Mapping[str, Sequence[str]]
) -> str:
    if unknown is not None:
        return "; " + _advice_for_name(unknown, expression, columns, others)
    if _UNCAST.search(why) and ("::" in expression or "cast" in expression.lower()):
        return "; to leave out values that are none, write try_cast(… as …) in place of a cast"
    if body := _BODY.search(expression):
        name = (body[1] or body[2] or "NAME")[:_SHOWN]
        return f"; a field of a JSON body is body_json.{name}, body holds its bytes, body_text its text"
    return ""


def _advice_for_name(unknown: str, expression: str, columns: Sequence[str], others: Mapping[str, Sequence[str]]) -> str:
    name, small = unknown[:_SHOWN], unknown.lower()
    quoted, field = f"a text takes single quotes: '{name}'", f"field of a JSON body is body_json.{name}"
    if f'"{unknown}"' in expression:
        return quoted
    if small in columns:  # of messages, which the query does not read
        archived = ", and archive with bodies=True (--bodies)" if "archive" in others else ""
        return f"the table messages has it{archived}"
    if expression.partition(unknown)[0].rstrip().endswith(("=", "<", ">")):
        return f"{quoted}. A {field}"
    longer = next((column for column in columns if column.endswith(f"_{small}")), None)
    if meant := _OLD_NAMES.get(small, longer):
        return f"did you mean {meant}? A {field}"
    if near := near_match(unknown, [*columns, *chain(*others.values())]):
        return f"did you mean {near}?"
    return "; ".join(f"{table} has {', '.join(names)}" for table, names in others.items()) or f"a {field}"


def _refuse(expression: str, why: str, kind: Kind = "expression") -> NoReturn:
    # DuckDB quotes values that it cannot convert, and they come from messages.
    end = "" if why.endswith(("?", ".")) else "."
    what = "expression" if kind == "expression" else "query"
    raise ConfigurationError(f"The {what} {expression[:_SHOWN]!r} cannot be used: {printable(why)}{end}") from None
