"""One local Spark session and one emulator for all tests of this folder."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator, running
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from sbnotebook.settlement import Connection
from sbnotebook.spark import batch_locking, held_batches, micro_batches, session, session_batches
from sbnotebook.spark.task_context import close_warm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.stream_processes import Query

SECRET = "c3VwZXJzZWNyZXQta2V5LXRoYXQtbm9ib2R5LW1heS1zZWU="


@pytest.fixture(scope="session")
def shared_emulator() -> Iterator[RunningEmulator]:
    with running(keys=[AuthorizationRule("planted", SECRET, "", frozenset(Claim))]) as emulator:
        yield emulator
        close_warm()  # of readers and writers that ran in this process


@pytest.fixture(scope="session")
def secret() -> str:
    """The key in the connection string."""
    return SECRET


@pytest.fixture(scope="session")
def connection_string(shared_emulator: RunningEmulator) -> str:
    own = shared_emulator.connection_string
    return own.replace("RootManageSharedAccessKey", "planted").replace("SAS_KEY_VALUE", SECRET)


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(event_log: Path, connection_string: str) -> Iterator[SparkSession]:
    """The session that sbnotebook makes; Java's environment and event log are fixed when it starts."""
    settings = {
        "spark.driver.memory": "600m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "2",
        # For the client in test_session_connect.py, which has no Spark of its own then.
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    said: list[str] = []
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_SUBMIT_ARGS", f"{given} pyspark-shell")
        environment.setenv("SBNOTEBOOK_TESTS_TARGET", connection_string)
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            environment.setenv(name, os.environ.get(name, ""))  # session sets them; they are put back
        spark = session(said.append)
    assert len(said) == 1
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def namespace(connection_string: str) -> Iterator[Namespace]:
    with Namespace(Target(Connection(connection_string), "a test")) as namespace:
        yield namespace


@pytest.fixture
def queue(namespace: Namespace) -> str:
    """A new queue's name."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    namespace.create_queue(name)
    return name


@pytest.fixture
def partitioned_queue(shared_emulator: RunningEmulator) -> str:
    """The name of a new queue whose sequence numbers begin with the number of a partition."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    shared_emulator.create_queue(name, QueueOptions(enable_partitioning=True))
    return name


@pytest.fixture
def read(spark: SparkSession, connection_string: str) -> Callable[..., DataFrame]:
    """Makes a frame of an entity, with options."""

    def read(entity: str, schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("servicebus").option("connectionString", connection_string)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(entity=entity, **options).load()

    return read


@pytest.fixture
def write(connection_string: str) -> Callable[..., None]:
    """Sends a frame to an entity, with options."""

    def write(frame: DataFrame, entity: str, *, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("servicebus").option("connectionString", connection_string)
        writer.options(entity=entity, **options).mode(mode).save()

    return write


@pytest.fixture
def stream(spark: SparkSession, connection_string: str) -> Iterator[Callable[..., DataFrame]]:
    """Makes a streaming frame of an entity, with options; queries that a test leaves are stopped."""

    def stream(entity: str, schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.readStream.format("servicebus").option("connectionString", connection_string)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(entity=entity, **options).load()

    before = {query.runId for query in spark.streams.active}
    yield stream
    for query in spark.streams.active:
        if query.runId not in before:
            query.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A folder for the checkpoint of a stream, which does not exist yet."""
    return str(tmp_path / "checkpoint")


# -------------------------------------------------- a query without Spark, on an emulator whose clock is turned by hand


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def emulator(clock: ManualClock) -> Iterator[RunningEmulator]:
    with running(clock=clock) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def own(emulator: RunningEmulator) -> Iterator[Namespace]:
    """The namespace of that emulator."""
    with Namespace(Target(Connection(emulator.connection_string), "a test")) as namespace:
        yield namespace


@pytest.fixture
def own_queue(emulator: RunningEmulator) -> str:
    """The name of a new queue in it."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    emulator.create_queue(name)
    return name


@pytest.fixture
def query(emulator: RunningEmulator, own_queue: str, request: pytest.FixtureRequest) -> Iterator[Query]:
    """A query of that queue, with the ``OPTIONS`` of the test's module."""
    from tests.spark.stream_processes import Query  # it needs Spark 4.2, and reads are tested with older ones

    options: dict[str, str] = cast("Any", request).module.OPTIONS
    query = Query(emulator, own_queue, dict(options))
    yield query
    query.stop()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less where nothing comes: the emulator answers at once."""
    waits = {
        batch_locking: {"_FIRST_WAIT": 0.2, "_PAUSE": 0.1},
        held_batches: {"_PAUSE": 0.1},
        micro_batches: {"_PAUSE": 0.1},
        session_batches: {"_PAUSE": 0.05, "_WAIT": 0.2, "_TAKE_WITHIN": 0.5, "_SET_ASIDE": 0.1},
    }
    for module, named in waits.items():
        for name, seconds in named.items():
            monkeypatch.setattr(module, name, seconds)
