from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.settlement import Connection
from sbnotebook.spark import load
from sbnotebook.spark.session import is_elsewhere
from tests.magics.conftest import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def deferred_two(namespace: Namespace, queue: str) -> str:
    """A queue of ten messages, two of them deferred."""
    namespace.entity(queue).send([f"{number}" for number in range(10)], show_progress=False)
    with namespace.entity(queue).lock(2) as batch:
        batch.defer()
    return queue


@pytest.fixture
def shell(connection_string: str) -> Iterator[Shell]:
    shell = Shell()
    shell.variables["connection_string"] = connection_string
    shell.run("%sb_connect {connection_string} --read-only")
    yield shell
    shell.close()


def test_load_returns_all_columns_and_no_secret_in_an_option(
    namespace: Namespace,
    deferred_two: str,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    secret: str,
) -> None:
    said: list[str] = []
    frame = load(namespace, deferred_two, partitions=2, maxMessages=None, say=said.append)
    assert [row.body_text for row in frame.orderBy("sequence_number").collect()] == list("0123456789")
    assert frame.dtypes == namespace.entity(deferred_two).peek(1, show_progress=False).to_spark(spark).dtypes
    frame.explain("extended")
    assert secret not in capsys.readouterr().out
    assert said == [f"Using the running Spark {spark.version} session."]


def test_load_of_an_unknown_host_is_refused_in_a_sentence(spark: SparkSession) -> None:
    class Credential:
        """None that Spark could use."""

        async def get_token(self, *_: str, **__: Any) -> Any:
            raise AssertionError("The driver asks for nothing.")

    connection = Connection.with_credential("no-such-namespace.invalid", Credential())
    began = time.monotonic()
    with (
        Namespace(Target(connection, "a test")) as namespace,
        pytest.raises(
            PySparkException, match=r"There is no host no-such-namespace\.invalid: check the namespace's name"
        ),
    ):
        load(namespace, "orders", spark=spark)
    assert time.monotonic() - began < 15, "5 seconds, on a machine that may be busy"


def test_load_warns_of_an_emulator_out_of_reach(namespace: Namespace, spark: SparkSession, queue: str) -> None:
    class Elsewhere:
        """A session of Spark Connect, as far as it is asked where it is."""

        client = SimpleNamespace(host="spark.invalid")

        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

    away: Any = Elsewhere()
    assert is_elsewhere(away)
    said: list[str] = []
    load(namespace, queue, spark=away, say=said.append)
    assert said == ["This emulator is on this machine only: Spark's workers on other machines do not reach it."]


def test_sb_spark_loads_with_a_read_only_connection(shell: Shell, deferred_two: str) -> None:
    ran = shell.run(f"%sb_spark {deferred_two} --into all_of_it")
    assert ran.out.startswith("Using the running Spark ")
    assert shell.variables["all_of_it"].count() == 10
    assert shell.variables["spark"] is shell.variables["all_of_it"].sparkSession
    chosen = shell.run(f"%sb_spark {deferred_two} --from 2 --to-sequence-number 6 --state active --partitions 2").value
    assert sorted(row.sequence_number for row in chosen.collect()) == [3, 4, 5, 6]
    assert shell.run(f"%sb_spark {deferred_two} -n 3").value.count() == 3


def test_sb_spark_leaves_a_variable_spark_alone(shell: Shell, queue: str) -> None:
    shell.variables["spark"] = "mine"
    assert shell.run(f"%sb_spark {queue}").value.count() == 0
    assert shell.variables["spark"] == "mine"


@pytest.mark.usefixtures("spark")
def test_sb_spark_takes_an_expression_and_a_limit(shell: Shell, deferred_two: str) -> None:
    shell.run(f"""%sb_spark {deferred_two} --where "body_text >= '5'" -n 3 --into frame""")
    assert shell.run("sorted(row.body_text for row in frame.collect())").value == ["5", "6", "7"]
    assert len(shell.run(f"%sb_pick {deferred_two} --messages frame --complete --dry-run").value) == 3
    said = shell.run(f"%sb_spark {deferred_two} --where 'no_such_column = 1'").err  # Spark adds a line of its own log
    assert "UsageError: The expression 'no_such_column = 1' cannot be used in Spark: " in said


def test_the_path_of_a_load_is_the_entity(spark: SparkSession, connection_string: str, deferred_two: str) -> None:
    reader = spark.read.format("servicebus").option("connectionString", connection_string)
    assert reader.load(deferred_two).count() == 10
    with pytest.raises(Exception, match="Name the entity once"):
        reader.option("entity", "other").load(deferred_two).count()
