"""One task of a write, in this process."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from sbnotebook.analysis import frames
from sbnotebook.client import Namespace
from sbnotebook.client.targets import ServiceCredential
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.errors import SbNotebookError
from sbnotebook.settlement import Connection
from sbnotebook.spark.browse_stream import BrowseStream
from sbnotebook.spark.consume_stream import ConsumeStream
from sbnotebook.spark.options import ReadOptions, StreamOptions, WriteOptions
from sbnotebook.spark.peek_reader import PeekReader
from sbnotebook.spark.send_writer import SendWriter
from sbnotebook.spark.task_context import close_warm
from sbnotebook.spark.task_writer import TaskResult
from tests.azure import HOST, in_azure
from tests.databricks import TaskCredentials

CLOUDPICKLE: Any = cloudpickle
"""As Spark pickles what it sends to workers."""

TEXTS = StructType().add("message_id", "string").add("body_text", "string")
LARGE = "x" * 1_100_000


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    yield
    close_warm()


def given(queue: str, connection_string: str, **options: str) -> WriteOptions:
    return WriteOptions.parse({"entity": queue, "connectionString": connection_string, **options})


def task_to(queue: str, connection_string: str, **options: str) -> SendWriter:
    task = SendWriter(given(queue, connection_string, **options), TEXTS, is_stream=False)
    return pickle.loads(CLOUDPICKLE.dumps(task))  # noqa: S301 (as Spark does it)


def texts(*chunks: list[str]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"body_text": chunk}) for chunk in chunks])


def rows_in(path: Path) -> list[dict[str, Any]]:
    untyped: Any = parquet
    return untyped.read_table(path).to_pylist()


def test_send_task_keeps_to_the_rate(connection_string: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_ROWS_AT_ONCE", 5)
    began = time.monotonic()
    assert task_to(queue, connection_string, rate="20").write(texts([str(n) for n in range(40)])) == TaskResult(40)
    assert time.monotonic() - began >= 0.95


@pytest.mark.thorough  # it asserts a time
def test_send_task_does_not_wait_between_chunks(
    connection_string: str, shared_emulator: RunningEmulator, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More transfers are in flight at once than one chunk of rows gives."""
    monkeypatch.setattr(frames, "_ROWS_AT_ONCE", 2)
    task = task_to(queue, connection_string, batchSize="1", maxInFlight="10")
    task.write(texts(["warm"]))
    shared_emulator.faults.entity(queue).accept_delay_ms = 300
    began = time.monotonic()
    assert task.write(texts([str(n) for n in range(40)])) == TaskResult(40)
    assert time.monotonic() - began < 20 * 0.3  # 4 round trips, and 20 if each chunk were waited for


@pytest.mark.parametrize(("rows", "size"), [(2, 10**7), (7, 10**7), (1000, 3_000_000), (1000, 1)])
def test_send_task_failures_belong_to_their_rows(
    connection_string: str,
    namespace: Namespace,
    queue: str,
    tmp_path: Path,
    rows: int,
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows with a partition key become messages first, those without become bytes together."""
    monkeypatch.setattr(frames, "_ROWS_AT_ONCE", rows)
    monkeypatch.setattr(frames, "_BYTES_AT_ONCE", size)
    numbers = range(40)
    batch = pa.RecordBatch.from_pydict(
        {
            "message_id": [f"{number}" for number in numbers],
            "body": [LARGE.encode() if number % 10 == 3 else b"x" for number in numbers],
            "partition_key": ["k" if 12 <= number < 25 else None for number in numbers],
        }
    )
    done = task_to(queue, connection_string, failuresPath=str(tmp_path)).write(
        iter([batch.slice(0, 11), batch.slice(11)])
    )
    assert (done.done, done.failed) == (36, 4)
    assert sorted(row["message_id"] for row in rows_in(tmp_path)) == ["13", "23", "3", "33"]
    found = {message.message_id: message.partition_key for message in namespace.entity(queue).peek(100)}
    assert found == {f"{n}": "k" if 12 <= n < 25 else None for n in numbers if n % 10 != 3}


def test_repeated_attempt_sends_the_same_message_ids(
    connection_string: str, shared_emulator: RunningEmulator, namespace: Namespace, queue: str
) -> None:
    once = f"{queue}-once"
    shared_emulator.create_queue(once, QueueOptions(requires_duplicate_detection=True))
    for name, count in ((once, 3), (queue, 6)):
        for _ in range(2):
            rows = pa.RecordBatch.from_pydict({"message_id": ["a", "b", "c"], "body_text": ["x"] * 3})
            assert task_to(name, connection_string).write(iter([rows])) == TaskResult(3)
        found = [message.message_id for message in namespace.entity(name).peek()]
        assert sorted(map(str, found)) == sorted("abc" * (count // 3))


def test_repeated_attempt_replaces_the_failed_rows(connection_string: str, queue: str, tmp_path: Path) -> None:
    task = task_to(queue, connection_string, failuresPath=str(tmp_path))
    assert task.write(texts([LARGE])).failed == 1
    assert task.write(texts([LARGE, LARGE])).failed == 2
    assert len(rows_in(tmp_path)) == 2
    assert task.write(texts(["x"])).failed == 0
    assert len(rows_in(tmp_path)) == 0
    assert [path.name.partition("-rows-")[0] for path in tmp_path.iterdir()] == ["no"]


def test_first_failure_ends_a_task_without_failures_path(
    connection_string: str, namespace: Namespace, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_ROWS_AT_ONCE", 2)
    pulled: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(50_000):
            pulled.append(number)
            yield from texts(["x", LARGE if number == 3 else "y"])

    task = task_to(queue, connection_string)
    result = task.write(rows())
    assert len(pulled) < 50_000
    assert len(namespace.entity(queue).peek(result.done + 1)) == result.done
    says = (
        f"^{result.done:,} messages were sent to {queue}, 1 failed, and 0 are unknown; the other rows of the tasks "
        "that failed were not sent. The first: failed: amqp:link:message-size-exceeded"
    )
    with pytest.raises(SbNotebookError, match=says):
        task.commit([result])


def test_send_task_counts_what_was_sent_before_an_error(
    connection_string: str, namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    def cut(*chunks: list[str]) -> Iterator[pa.RecordBatch]:
        yield from texts(["a"] * 3, *chunks)
        raise EOFError

    # Without failuresPath, a row that fails may end the task before the error comes.
    for options, chunks in (({}, []), ({"failuresPath": str(tmp_path)}, [[LARGE]])):
        with pytest.raises(SbNotebookError, match=r"^3 messages were sent to .* by this task, then it failed: "):
            task_to(queue, connection_string, **options).write(cut(*chunks))
    assert len(namespace.entity(queue).peek()) == 6
    assert [path.name.partition("-rows-")[0] for path in tmp_path.iterdir()] == ["no"]


def test_row_without_an_answer_fails_as_unconfirmed(
    connection_string: str, shared_emulator: RunningEmulator, queue: str, tmp_path: Path
) -> None:
    shared_emulator.faults.entity(queue).drop_after_nth = 1
    done = task_to(queue, connection_string, failuresPath=str(tmp_path), batchSize="1").write(texts(["a", "b"]))
    rows = rows_in(tmp_path)
    assert done.failed == len(rows) >= 1
    assert {row["outcome_status"] for row in rows} == {"unconfirmed"}


def test_send_task_finds_a_recreated_queue(connection_string: str, namespace: Namespace, queue: str) -> None:
    task = task_to(queue, connection_string)
    for _ in range(3):
        assert task.write(texts(["a", "b"])) == TaskResult(2)
        assert len(namespace.entity(queue).peek()) == 2
        namespace.delete_queue(queue)
        namespace.create_queue(queue)


def test_send_task_to_a_missing_queue_raises_one_sentence(connection_string: str, secret: str) -> None:
    with pytest.raises(
        SbNotebookError, match=r"^0 messages were sent to nowhere by this task, then it failed: "
    ) as error:
        task_to("nowhere", connection_string).write(texts(["a"]))
    assert secret[:20] not in str(error.value)


def test_send_writer_logs_commit_and_abort(
    connection_string: str, queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    batch = SendWriter(given(queue, connection_string, failuresPath=str(tmp_path)), TEXTS, is_stream=False)
    stream = SendWriter(given(queue, connection_string), TEXTS, is_stream=True)
    caplog.clear()
    batch.commit([TaskResult(4000), TaskResult(3)])
    batch.commit([TaskResult(4000), TaskResult(3, failed=2, unknown=1, first_failure="large")])
    batch.abort([TaskResult(4000), None])
    stream.commit([TaskResult(1)], 7)
    stream.abort([None], 8)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    failed = "The write failed, and nothing is taken back"
    others = "For the other tasks, see the error."
    doubts = "1 failed, and 1 are unknown (they may have arrived)"
    assert said == [
        ("INFO", f"4,003 messages were sent to {queue}, 0 failed, and 0 are unknown."),
        (
            "WARNING",
            f"4,003 messages were sent to {queue}, {doubts}; their rows are in failuresPath. The first: large",
        ),
        ("WARNING", f"{failed}: 4,000 messages were sent to {queue} by 1 successful tasks. {others}"),
        ("INFO", f"Micro-batch 7: 1 messages were sent to {queue}, 0 failed, and 0 are unknown."),
        ("WARNING", f"Micro-batch 8: {failed}: 0 messages were sent to {queue} by 0 successful tasks. {others}"),
    ]


def test_tasks_and_streams_sign_in_with_a_service_credential(
    connection_string: str, namespace: Namespace, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ServiceCredential] = []

    def with_credential(host: Any, credential: Any = None) -> Connection:
        assert host == HOST
        asked.append(credential)
        return in_azure(connection_string)

    monkeypatch.setattr(Connection, "with_credential", with_credential)
    monkeypatch.setitem(sys.modules, "databricks", ModuleType("databricks"))
    monkeypatch.setitem(sys.modules, "databricks.service_credentials", TaskCredentials(["bus"]))
    options = {"entity": queue, "fullyQualifiedNamespace": HOST, "credential": "bus"}
    writer = SendWriter(WriteOptions.parse(options), TEXTS, is_stream=False)
    assert pickle.loads(CLOUDPICKLE.dumps(writer)).write(texts(["a"])) == TaskResult(1)  # noqa: S301
    reader = PeekReader(ReadOptions.parse(options), StructType().add("body_text", "string"))
    rows = [batch.to_pylist() for part in reader.partitions() for batch in reader.read(part)]
    assert rows == [[{"body_text": "a"}]]
    for kind, mode in ((BrowseStream, "browse"), (ConsumeStream, "consume")):
        stream = kind(StreamOptions.parse({**options, "mode": mode}), StructType().add("body_text", "string"))
        start = stream.initialOffset()
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        parts: list[Any] = [*stream.partitions(start, end)]
        assert [batch.to_pylist() for part in parts for batch in stream.read(part)] == rows
        stream.stop()
    assert {credential.name for credential in asked} == {"bus"}
    assert len(namespace.entity(queue).peek()) == 1
