"""Expressions that reach outside, take all memory or time, or crash DuckDB, and messages that make them do so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import duckdb
import pytest

from sbnotebook.amqp.decoding import LEVELS
from sbnotebook.analysis import query
from sbnotebook.analysis.query import where
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message
from sbnotebook.model.budget import PARSED_CHARACTERS

MESSAGES = [Message(subject="a", body=b'{"carrier": "UA"}'), Message(subject="b")]

# ------------------------------------------------------------------------------------------- reaching outside

READ_A_FILE = (
    *("read_text", "read_blob", "read_csv", "read_csv_auto", "sniff_csv", "glob", "parquet_scan", "read_parquet"),
    *("parquet_metadata", "parquet_schema", "parquet_file_metadata", "parquet_kv_metadata", "parquet_bloom_probe"),
    *("read_json", "read_json_auto", "read_json_objects", "read_json_objects_auto", "read_ndjson", "read_ndjson_auto"),
    *("read_ndjson_objects", "arrow_scan", "arrow_scan_dumb", "pandas_scan", "python_map_function", "read_duckdb"),
    *("sqlite_scan", "sqlite_attach", "postgres_scan", "postgres_attach", "mysql_scan", "iceberg_scan", "delta_scan"),
    *("st_read", "read_xlsx", "read_avro", "http_get", "http_post", "shell_exec", "getenv", "which_secret", "load"),
    *("duckdb_secrets", "duckdb_settings", "duckdb_databases", "duckdb_extensions", "duckdb_logs", "duckdb_functions"),
    *("duckdb_temporary_files", "duckdb_memory", "pragma_database_list", "pragma_platform", "pragma_storage_info"),
    *("pragma_user_agent", "pragma_version", "pragma_show", "checkpoint", "force_checkpoint", "query", "query_table"),
    *("json_execute_serialized_sql", "from_substrait", "get_substrait", "seq_scan", "index_scan", "repeat_row"),
    *("set_config", "install", "import_database", "export_database", "attach", "copy", "enable_logging", "write_log"),
)
CALLS = ["EXISTS (FROM {0}('FILE'))", "{0}('FILE') IS NOT NULL", "(SELECT count(*) FROM {0}('FILE', 't')) > 0"]
READS = [
    "(SELECT count(*) FROM 'FILE') > 0",
    "EXISTS (FROM 'FILE')",
    "(SELECT count(*) FROM read_csv('URL')) > 0",
    "(SELECT count(*) FROM 'URL') > 0",
    "(SELECT content FROM read_text('FILE')) > ''",
    "subject IN (SELECT content FROM read_text('FILE'))",
    "subject = ANY (SELECT content FROM read_text('FILE'))",
    "len(array(SELECT content FROM read_text('FILE'))) > 0",
    "[x FOR x IN (SELECT content FROM read_text('FILE'))] IS NULL",
    "list_transform([1], lambda x: (SELECT content FROM read_text('FILE'))) IS NULL",
    "CASE WHEN (SELECT true FROM read_text('FILE')) THEN true END",
    "(WITH x AS MATERIALIZED (FROM read_text('FILE')) SELECT true FROM x)",
    "(FROM (SELECT true FROM read_text('FILE')))",
    "(SELECT count(*) FROM query('SELECT * FROM read_text(''FILE'')')) > 0",
    "(SELECT count(*) FROM (DESCRIBE SELECT * FROM read_text('FILE'))) > 0",
    "(SELECT count(*) FROM (SUMMARIZE FROM read_csv('FILE'))) > 0",
    "(PIVOT 'FILE' ON a) IS NULL",
    "max((SELECT content FROM read_text('FILE'))) OVER () > ''",
    "count(*) FILTER (WHERE EXISTS (FROM read_text('FILE'))) > 0",
]
SETTINGS = [
    "current_setting('memory_limit') <> ''",
    "Current_Setting('memory_limit') <> ''",
    "\"current_setting\"('memory_limit') <> ''",
    "main.current_setting('memory_limit') <> ''",
    "system.main.current_setting('memory_limit') <> ''",
    "'memory_limit'.current_setting() <> ''",
    "list_transform(['memory_limit'], lambda x: current_setting(x)) IS NOT NULL",
    "getenv('HOME') <> ''",
    "getvariable('x') IS NULL",
    "nextval('x') = 1",
    "setseed(0.5) IS NULL",
    "sleep_ms(1) IS NULL",
    "pg_sleep(1) IS NULL",
    "write_log('x') IS NULL",
    "json_serialize_plan('SELECT * FROM read_text(''FILE'')') IS NOT NULL",
    "JSON_Serialize_Plan('SELECT 1') IS NOT NULL",
    "json_serialize_sql('SELECT 1') IS NOT NULL",
    "json_deserialize_sql(json_serialize_sql('SELECT 1')) IS NOT NULL",
    "'127.0.0.1'::INET IS NOT NULL",
    "st_point(1, 2) IS NOT NULL",
]
STATEMENTS = [
    "true; SELECT 1",
    "true; DROP TABLE messages",
    "true; ATTACH 'FILE' AS other",
    "true; DETACH memory",
    "true; USE memory",
    "true; COPY (SELECT 1) TO 'FILE'",
    "true; COPY x FROM 'FILE'",
    "true; EXPORT DATABASE 'FILE'",
    "true; IMPORT DATABASE 'FILE'",
    "true; SET enable_external_access = true",
    "true; RESET enable_external_access",
    "true; PRAGMA version",
    "true; PRAGMA enable_profiling",
    "true; CALL pragma_version()",
    "true; INSTALL httpfs; LOAD httpfs",
    "true; LOAD 'FILE'",
    "true; CREATE MACRO f(a) AS a",
    "true; CREATE SECRET (TYPE s3)",
    "true; CREATE TABLE t AS FROM 'FILE'",
    "true; PREPARE x AS SELECT 1",
    "true; CHECKPOINT",
    "true; VACUUM",
    "true; EXPLAIN ANALYZE SELECT 1",
    "true) --",
    "1=1) UNION SELECT 1 --",
    "true UNION SELECT true",
    "true LIMIT 1",
    "true ORDER BY 1",
    "true FROM 'FILE'",
    "true FROM range(10)",
    "true WHERE true",
    "true GROUP BY ALL",
    "true QUALIFY true",
    "true USING SAMPLE 1",
    "(COPY (SELECT 1) TO 'FILE') = 1",
    "(WITH x AS (INSERT INTO t VALUES (1) RETURNING 1) SELECT 1) = 1",
    "(WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t) > 0",
    "(SELECT count(*) FROM range(1000000000000)) > 0",
    "(SELECT count(*) FROM generate_series(1, 1000000000000)) > 0",
    "generate_subscripts([1], 1) = 1",
    "unnest([true, false])",
]
OUTSIDE = [call.format(name) for name in READ_A_FILE for call in CALLS] + READS + SETTINGS + STATEMENTS


def test_expressions_reach_nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nhunter2\n")
    monkeypatch.setenv("HUNTER", "hunter2")
    assert len(OUTSIDE) >= 160
    for expression in OUTSIDE:
        with pytest.raises(ConfigurationError) as refused:
            where(MESSAGES, expression.replace("FILE", str(secret)).replace("URL", "http://127.0.0.1:9/x.csv"))
        assert "hunter2" not in str(refused.value), expression
        assert "DuckDB crashed" not in str(refused.value), expression
    assert secret.read_text() == "a\nhunter2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_same_expressions_reach_a_file_without_settings(tmp_path: Path) -> None:
    # So that the test above would fail if the settings and checks were lost.
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nhunter2\n")
    for read in (READS[0], READS[1], READS[4], CALLS[0].format("read_blob"), CALLS[0].format("read_csv")):
        with duckdb.connect(":memory:") as database:
            assert database.execute(f"SELECT {read.replace('FILE', str(secret))}").fetchall() == [(True,)]


def test_functions_that_read_more_than_a_message_are_refused() -> None:
    # A new version of DuckDB may have more of them: allow those that tell the time or chance, and refuse the others.
    allowed = {
        *("current_date", "get_current_time", "get_current_timestamp", "now", "today", "transaction_timestamp"),
        *("random", "gen_random_uuid", "uuid", "uuidv4", "uuidv7", "error"),
    }
    with duckdb.connect(":memory:") as database:
        rows = database.execute(
            "SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'"
        ).fetchall()
    for name in {name for (name,) in rows} - allowed:
        with pytest.raises(ConfigurationError, match=f"the function {name} at character 1 is not about a message"):
            where(MESSAGES, f"{name}(1) IS NULL")


# ------------------------------------------------------------------------------------------- deep and long JSON


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_body_json_is_missing_where_json_is_too_deep() -> None:
    deep = [nested(LEVELS + 1), nested(60_000), nested(200_000), b'{"a":' * 80 + b"1" + b"}" * 80]
    flat = [
        nested(LEVELS),
        b'{"a": "' + b"[{" * 500 + b'"}',
        b'["\\"' + b"[" * 500 + b'"]',
        b"[" + b"[]," * 500 + b"[]]",
    ]
    messages = [Message(body=body) for body in (*deep, *flat)]
    assert [message.body for message in where(messages, "body_json IS NULL")] == deep
    assert [message.body for message in where(messages, "body_json::VARIANT IS NOT NULL")] == flat
    assert where(messages, "json_contains(body_json, '1')") == []
    # A zero makes the text beside it no JSON, and hides no other.
    zero = b'{"a": "\0"}'
    assert [message.body for message in where([*messages, Message(body=zero)], "body_json IS NULL")] == [*deep, zero]


def test_body_json_is_missing_where_a_body_is_too_long() -> None:
    messages = [Message(body=b'"' + b"x" * (PARSED_CHARACTERS - 2 + more) + b'"') for more in (0, 1)]
    assert where([*messages, Message(body=b"[" * 9_000_000)], "body_json IS NOT NULL") == messages[:1]


def test_body_json_is_missing_in_every_part_of_a_large_table() -> None:
    # DuckDB evaluates 512 kB at a time. Binary bodies have no body_text.
    odd = {0: b"\xff\xfe", 2: nested(LEVELS + 1), 3: b"no JSON"}
    bodies = [odd.get(number % 700, b'{"a": "' + b"x" * 300 + b'"}') for number in range(5_000)]
    found = where([Message(body=body) for body in bodies], "body_json IS NULL")
    assert [message.body for message in found] == [body for body in bodies if body in odd.values()]


# ------------------------------------------------------------------------------------------- memory and time

ATTACKED = """
import resource, sys
from sbnotebook.analysis.query import where
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message

properties = {"a": "[" * 60_000 + "]" * 60_000}
deep = b"[" * 200_000 + b"]" * 200_000
messages = [Message(body=deep), Message(body=b"{}", application_properties=properties)]
where(messages, "true")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for expression in sys.argv[1:]:
    try:
        print(len(where(messages, expression)))
    except ConfigurationError as error:
        print(str(error).partition("cannot be used: ")[2])
for kind, less in ((resource.RUSAGE_SELF, before), (resource.RUSAGE_CHILDREN, 0)):
    print((resource.getrusage(kind).ru_maxrss - less) // 1024)
"""
CRASHED = "DuckDB crashed (-11), as it does on very deep JSON: use body_json, which leaves such bodies out."
EXHAUSTED = "it takes more than 1 GB of memory: make it simpler, or look at fewer messages."
ATTACKS = {
    "json_contains(body_json, '1')": "0",
    "body_json::VARIANT IS NOT NULL": "1",
    "json_contains(body_text, '1')": CRASHED,
    "application_properties['a']::JSON::VARIANT IS NOT NULL": CRASHED,
    "list_sum(range(100000000)) > 0": EXHAUSTED,
    "length(printf('%1000000000s', body_type) || printf('%1000000000s', body_type)) > 0": EXHAUSTED,
    "body_json IS NULL": "1",
}
TAKE_ALL_TIME = [
    "list_sum(list_transform(range(3000000), lambda x: list_sum(range(10000 + x % 2)))) > sequence_number",
    "length(lpad(subject, 2000000000, 'x')) > 0",
]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process")
def test_kernel_outlives_crashes_and_greedy_expressions(tmp_path: Path) -> None:
    # In a process of its own: without the limits it would crash, or take all memory.
    done = run(ATTACKED, tmp_path, *ATTACKS)
    *answers, own, children = done.stdout.splitlines() or ["", "0", "0"]
    assert (done.returncode, dict(zip(ATTACKS, answers, strict=False)), done.stderr) == (0, ATTACKS, "")
    assert int(own) < 100  # MB
    assert int(children) < 1_400


def test_bodies_of_many_values_exhaust_no_memory() -> None:
    # Each function over JSON takes up to 30 times the bytes of all bodies that DuckDB evaluates at a time.
    messages = [Message(body=b"[" + b"1," * 128_000 + b"1]")] * 12
    expression = " and ".join(f"body_json->>'$.a{number}' is null" for number in range(10))
    assert len(where(messages, expression)) == 12


@pytest.mark.parametrize("expression", TAKE_ALL_TIME)
def test_expressions_take_no_more_time_than_they_may(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where(MESSAGES, "true")  # starts the process
    monkeypatch.setattr(query, "_MOST_SECONDS", 0.2)
    with pytest.raises(ConfigurationError, match="takes more than 0 seconds: make it simpler, or look at fewer mess"):
        where(MESSAGES, expression)


def test_limits_hold_while_a_large_table_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [Message(body=b"x" * 2_000, subject="a")] * 3_000
    with pytest.raises(ConfigurationError, match="more than 1 GB of memory"):
        where(messages, "list_sum(range(100000000 + length(subject))) > 0")
    monkeypatch.setattr(query, "_MOST_SECONDS", 0.5)
    with pytest.raises(ConfigurationError, match="takes more than 0 seconds"):
        where(messages, "length(repeat(body_text, 300)) < 0 or " * 50 + TAKE_ALL_TIME[0])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process")
def test_a_body_too_large_for_the_process_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_MOST_MEMORY", 250_000_000)
    monkeypatch.setattr(query, "_idle", defaultdict[int, list[object]](list))  # a new process, with this limit
    messages = [Message(body=b"x" * 70_000_000), Message(body=b"y")]
    with pytest.raises(ConfigurationError, match=r"it takes more than 0\.25 GB of memory"):
        where(messages, "body_text like 'x%'")
    assert where(messages[1:], "body_text like 'y%'") == messages[1:]


def test_regular_expressions_take_linear_time() -> None:
    # DuckDB's engine is RE2, which does not backtrack: these take years with one that does.
    messages = [Message(subject="a" * 30_000)]
    for pattern in ("(a*)*b", "(a|aa)+$b", "(a+)+(a+)+b", "^(([a-z])+.)+[A-Z]([a-z])+$"):
        assert where(messages, f"regexp_matches(subject, '{pattern}')") == []
    with pytest.raises(ConfigurationError, match="invalid repetition size"):
        where(messages, "regexp_matches(subject, '((a{1000}){1000}){1000}')")


# ------------------------------------------------------------------------------------------- the process


def test_interrupt_ends_an_expression_and_not_the_next() -> None:
    where(MESSAGES, "true")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        where(MESSAGES, TAKE_ALL_TIME[0])
    assert where(MESSAGES, "subject = 'b'") == MESSAGES[1:]


@pytest.mark.skipif(sys.platform != "linux", reason="the processes are found in /proc")
def test_process_that_the_system_ended_is_replaced() -> None:
    where(MESSAGES, "true")
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    evaluating = [child for child in children if b"query_worker" in Path(f"/proc/{child}/cmdline").read_bytes()]
    assert evaluating
    for child in evaluating:
        os.kill(int(child), signal.SIGKILL)
        os.waitid(os.P_PID, int(child), os.WEXITED | os.WNOWAIT)
    assert where(MESSAGES, "subject = 'b'") == MESSAGES[1:]


def test_threads_evaluate_at_the_same_time() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(partial(where, MESSAGES), ["subject = 'a'", "subject = 'b'"] * 10))
    assert found == [MESSAGES[:1], MESSAGES[1:]] * 10


SHARING = """
import os, sys
from pathlib import Path
from sbnotebook.analysis.query import where
from sbnotebook.model import Message

messages = [Message(subject="a"), Message(subject="b")]
assert len(where(messages, "subject = 'a'")) == 1
if os.fork() == 0:
    os._exit(len(where(messages, "subject is not null")))
print(os.waitstatus_to_exitcode(os.wait()[1]), len(where(messages, "subject = 'a'")))
children = Path(f"/proc/self/task/{os.getpid()}/children")
print(children.read_text() if children.exists() else "", flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_process_is_its_parents_and_ends_with_it(tmp_path: Path) -> None:
    # Files in the current folder are not imported.
    for name in ("duckdb", "json", "faulthandler", "pyarrow"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    done = run(SHARING, tmp_path)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    counts, children = done.stdout.splitlines()
    assert counts == "2 1"
    deadline = time.monotonic() + 20
    while any(is_running(int(child)) for child in children.split()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


def run(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", script, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
