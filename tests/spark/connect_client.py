"""What a user of Spark Connect does, in a process without a Spark of its own: run by test_session_connect.py.

Arguments: a folder, the address of the server, a connection string, and two of the same emulator by another name of
this machine with wrong keys; the key of the last one is shown by Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sbnotebook import connect
from sbnotebook.client import Namespace
from sbnotebook.settlement import Connection
from sbnotebook.spark import register, session
from sbnotebook.spark.session import is_elsewhere
from tests.spark.planted_secrets import whole_text


def main(folder: Path, address: str, connection_string: str, wrong: str, control: str) -> None:
    """Do it all; an error ends the process."""
    spark = SparkSession.builder.remote(address).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    said: list[str] = []
    assert session(said.append) is spark
    assert said == [f"Using the running Spark {spark.version} session."]
    assert not is_elsewhere(spark)
    with connect(connection_string) as namespace:
        for queue in ("connected", "taken"):
            namespace.create_queue(queue)
        register(spark, connection_string)
        read_and_write(spark, namespace)
        consume(spark, namespace, folder)
        use_the_magic(spark, connection_string)
        settle(spark, namespace)
        fail(spark, wrong, control)


def read_and_write(spark: SparkSession, namespace: Namespace) -> None:
    rows = spark.range(20).selectExpr("concat('text ', id) as body_text", "cast(id as string) as message_id")
    where = {"entity": "connected", "fullyQualifiedNamespace": namespace.host}
    rows.write.format("servicebus").options(**where).mode("append").save()
    read = spark.read.format("servicebus").options(**where, partitions=2).load()
    assert sorted(row.body_text for row in read.collect()) == sorted(f"text {number}" for number in range(20))
    read.explain("extended")

    peeked = namespace.entity("connected").peek(show_progress=False)
    frame = peeked.to_spark(spark)
    assert frame.columns == read.columns
    assert frame.select("message_id").collect() == [(message.message_id,) for message in peeked]
    none = namespace.entity("taken").peek(show_progress=False).to_spark(spark)
    assert (none.schema, none.count(), none.collect()) == (frame.schema, 0, [])


def consume(spark: SparkSession, namespace: Namespace, folder: Path) -> None:
    namespace.entity("taken").send([f"{number}" for number in range(5)], show_progress=False)
    where = {"entity": "taken", "fullyQualifiedNamespace": namespace.host, "mode": "consume"}
    stream = spark.readStream.format("servicebus").options(**where).load().select("body_text")
    output, checkpoint = str(folder / "output"), str(folder / "checkpoint")
    query = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    assert query.start(output).awaitTermination(120)
    assert sorted(row.body_text for row in spark.read.parquet(output).collect()) == list("01234")
    assert not namespace.entity("taken").peek(show_progress=False)


def use_the_magic(spark: SparkSession, connection_string: str) -> None:
    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "sbnotebook")
    shell.user_ns["connection_string"] = connection_string
    shell.run_line_magic("sb_connect", "{connection_string} --read-only")
    shell.run_line_magic("sb_spark", "connected --from 6 --to-sequence-number 10 --into found")
    assert shell.user_ns["spark"] is spark
    assert shell.user_ns["found"].count() == 5


def settle(spark: SparkSession, namespace: Namespace) -> None:
    with namespace.entity("connected").lock(3) as batch:
        batch.defer()
    columns = "sequence_number bigint, decision string"
    decisions = spark.createDataFrame([(1, "complete"), (2, "complete"), (3, "complete")], columns)
    outcomes = namespace.settle_frame(decisions, entity="connected", archived=False, show_progress=False)
    assert [row.status for row in outcomes.collect()] == ["settled"] * 3
    assert len(namespace.entity("connected").peek(show_progress=False)) == 17


def fail(spark: SparkSession, wrong: str, control: str) -> None:
    """Print all that there is to see of errors."""
    register(spark, wrong)
    where = {"entity": "connected", "fullyQualifiedNamespace": str(Connection(wrong).host)}
    in_an_option = {"entity": "connected", "connectionString": control}
    for options in (where, {**where, "partitions": "2"}, {**where, "partition": "2"}, in_an_option):
        try:
            spark.read.format("servicebus").options(**options).load().collect()
        except PySparkException as error:
            print(whole_text(error))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
