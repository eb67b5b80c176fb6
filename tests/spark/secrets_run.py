"""Does with a planted secret all that can be done in Spark, well and badly, and keeps all that is said: see main."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sbnotebook import connect
from sbnotebook.client import Namespace
from sbnotebook.emulator import running
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from tests.spark.planted_secrets import whole_text

MODES: Final = ("simple", "extended", "codegen", "cost", "formatted")
RESOURCES: Final = (
    "jobs",
    "stages?details=true&withSummaries=true",
    "sql?details=true&planDescription=true&length=1000",
    "environment",
    "executors",
)
AT_ONCE: Final = 2
"""Attempts that fail at the same time."""
PAGES: Final = ("jobs", "stages", "SQL", "environment", "executors", "StreamingQuery")


class Run:
    """One Spark with its user interface and its event log, and an emulator that has the planted key.

    Args:
        folder: to which everything is written.
        planted: the key that works.
        wrong: one that does not, and is named as an entity besides, because errors repeat names.
        control: a secret that is written on purpose, in all of the places that are searched.
    """

    def __init__(self, folder: Path, planted: str, wrong: str, control: str) -> None:
        self.folder, self.planted, self.wrong, self.control = folder, planted, wrong, control
        (folder / "events").mkdir()
        self.said = (folder / "said.txt").open("w")
        settings = {
            "spark.driver.memory": "600m",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (folder / "events").as_uri(),
            "spark.eventLog.compress": "false",
            "spark.log.level": "INFO",
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
        }
        builder = SparkSession.builder.master("local[2]").appName("secrets")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()

    def say(self, text: object) -> None:
        self.said.write(f"{text}\n")

    def fails(self, what: str, attempt: Callable[[], object]) -> None:
        """Keep all that there is of an error."""
        try:
            attempt()
        except PySparkException as error:
            self.say(f"FAILED {what}: {whole_text(error)}")
        else:
            raise AssertionError(f"{what} should have failed")

    def frame(self, connection_string: str, entity: str, **options: str) -> DataFrame:
        reader = self.spark.read.format("servicebus").option("connectionString", connection_string)
        return reader.options(entity=entity, **options).load()

    def write(self, frame: DataFrame, connection_string: str, entity: str, **options: str) -> None:
        writer = frame.write.format("servicebus").option("connectionString", connection_string).mode("append")
        writer.options(entity=entity, **options).save()

    def stream(self, name: str, connection_string: str, given: Mapping[str, str], sink: Mapping[str, str]) -> None:
        """A stream to its end, into a format or into an entity; its progress is kept."""
        reader = self.spark.readStream.format("servicebus").option("connectionString", connection_string)
        writer = reader.options(**given).load().select("body_text", "sequence_number").writeStream
        writer = writer.format(sink["format"]).options(**{key: sink[key] for key in sink if key != "format"})
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoints" / name)).queryName(name)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(200)
        finally:
            self.say([progress.json for progress in query.recentProgress])
            self.say(query.status)
            self.say(query.exception() and whole_text(query.exception()))

    # ---------------------------------------------------------------- the actions

    def succeed(self, namespace: Namespace, good: str) -> None:
        rows = self.spark.range(6).select(f.col("id").cast("string").alias("body_text"))
        self.write(rows, good, "orders")
        read = self.frame(good, "orders", partitions="2")
        assert read.count() == 6
        for mode in MODES:
            read.explain(mode)
        self.say(read.schema)
        with namespace.entity("orders").lock(2) as batch:
            batch.defer()
        decisions = self.spark.createDataFrame(
            [(1, "complete"), (2, "complete")], "sequence_number long, decision string"
        )
        self.write(decisions.where("sequence_number = 1"), good, "orders", operation="settle", archive="false")
        outcomes = namespace.settle_frame(
            decisions.where("sequence_number = 2"), entity="orders", archived=False, show_progress=False
        )
        assert [row.status for row in outcomes.collect()] == ["settled"]
        browse = {"entity": "orders", "mode": "browse"}
        self.stream("browsed", good, browse, {"format": "noop"})
        sent = {"format": "servicebus", "connectionString": good, "entity": "out"}
        self.stream("consumed", good, {"entity": "orders", "mode": "consume"}, sent)
        assert len(namespace.entity("out").peek(show_progress=False)) == 4

    def fail(self, good: str, bad: str) -> None:
        wrong = self.wrong.rstrip("=")
        rows = self.spark.range(1).select(f.lit("x").alias("body_text"))
        misspelt = self.spark.read.format("servicebus").options(entity="orders", conectionString=bad)
        decisions = self.spark.createDataFrame([(1, "shred")], "sequence_number long, decision string")
        nowhere = {"format": "servicebus", "connectionString": bad, "entity": "out"}
        attempts: dict[str, Callable[[], object]] = {
            "an option": misspelt.load,
            "an entity": lambda: self.frame(good, bad),
            "a value": lambda: self.frame(good, "orders", partitions=bad).count(),
            "the planner": lambda: self.frame(bad, wrong, partitions="2").count(),
            "a read": lambda: self.frame(bad, "orders").count(),
            "a write": lambda: self.write(rows, bad, "orders"),
            "a write to nowhere": lambda: self.write(rows, good, "nowhere"),
            "a decision": lambda: self.write(decisions, good, "orders", operation="settle"),
            "a stream's sink": partial(self.stream, "no sink", good, {"entity": "more"}, nowhere),
        }
        for mode in ("browse", "consume"):
            given = {"entity": "orders", "mode": mode}
            attempts[f"to {mode}"] = partial(self.stream, f"no {mode}", bad, given, {"format": "noop"})
        # Most of their time is waits before they try again. Spark looks for the format of a writer in the session of
        # its thread, which is ours after createDataFrame.
        in_thread = partial(self.spark.createDataFrame, [], "id int")
        with ThreadPoolExecutor(AT_ONCE, initializer=in_thread) as pool:
            for _ in pool.map(self.fails, attempts, attempts.values()):
                pass

    def tell(self) -> None:
        """Tell the control secret wherever the others must not be."""
        control = self.control

        def tell(_number: int) -> int:
            sys.stderr.write(control)
            raise ValueError(control)

        telling: Any = f.udf(tell, "int")
        self.fails("control", lambda: self.spark.range(1).select(telling("id")).collect())
        text = f"Endpoint=sb://localhost/;SharedAccessKeyName=k;SharedAccessKey={control}"
        self.spark.sql(f"CREATE TEMPORARY VIEW v USING servicebus OPTIONS (entity 'x', connectionString '{text}')")
        query = self.spark.readStream.format("rate").load().writeStream.format("noop").queryName(control)
        query = query.option("checkpointLocation", str(self.folder / "checkpoints" / "control")).start()
        query.processAllAvailable()
        self.say([progress.json for progress in query.recentProgress])
        query.stop()
        (self.folder / "checkpoints" / "control" / "told").write_text(control)

    def keep_what_is_shown(self) -> None:
        """All resources and pages of the user interface."""
        address = self.spark.sparkContext.uiWebUrl
        begin = f"{address}/api/v1/applications/{self.spark.sparkContext.applicationId}/"
        folder = self.folder / "shown"
        folder.mkdir()
        for name in (*(begin + each for each in RESOURCES), *(f"{address}/{page}/" for page in PAGES)):
            with urllib.request.urlopen(name, timeout=60) as answer:  # noqa: S310
                kind = "resource" if "api/v1" in name else "page"
                last = name.rstrip("/").rpartition("/")[2].partition("?")[0]
                (folder / f"{kind} {last}").write_bytes(answer.read())


def main(folder: Path, planted: str, wrong: str, control: str) -> None:
    """Do it all; the caller keeps the standard output and error."""
    run = Run(folder, planted, wrong, control)
    rule = AuthorizationRule("planted", planted, "", frozenset(Claim))
    with running(keys=[rule], queues=["orders", "out", "more"]) as emulator:
        end = ";UseDevelopmentEmulator=true;"
        begin = f"{emulator.connection_string.partition(';')[0]};SharedAccessKeyName=planted;SharedAccessKey="
        good, bad = f"{begin}{planted}{end}", f"{begin}{wrong}{end}"
        with connect(good) as namespace:
            run.succeed(namespace, good)
            namespace.entity("more").send(["x"], show_progress=False)
        run.fail(good, bad)
    run.tell()
    run.keep_what_is_shown()
    run.spark.stop()
    run.said.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
