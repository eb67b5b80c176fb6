"""Every Python block of the pages about Spark runs, in the session that all tests of this folder share."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from sbnotebook.client import Namespace
from sbnotebook.model import Message
from tests.house.test_docs import ROOT, RUN, needs_spark
from tests.pages import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(page: str, text: str, spark: SparkSession, **others: object) -> None:
    before = {query.runId for query in spark.streams.active}
    try:
        execute(page, text, spark=spark, **others)  # what it defines is pickled by value
        assert {query.runId for query in spark.streams.active} <= before, "A page stops the streams that it starts."
    finally:
        for query in spark.streams.active:
            if query.runId not in before:
                query.stop()


PAGES = [path for path in RUN if needs_spark(path) and path.name != "databricks.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
@pytest.mark.thorough
def test_blocks_of_a_page_run(page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(str(page.relative_to(ROOT)), page.read_text(), spark)


@pytest.fixture
def dbutils(namespace: Namespace, connection_string: str) -> Iterator[object]:
    """What Databricks puts into a notebook, with the secret of an emulator that has what the page speaks of."""

    def get(scope: str, key: str) -> str:
        return {("messaging", "shop"): connection_string}[scope, key]

    for queue in ("orders", "summaries"):
        namespace.create_queue(queue)
    orders = namespace.entity("orders")
    orders.send([Message(body=b"%d" % number, subject="order") for number in range(3)], show_progress=False)
    with orders.lock(1) as batch:
        batch.dead_letter(reason="Bad")
    shell: Any = InteractiveShell.instance(config=Config({"HistoryManager": {"hist_file": ":memory:"}}))
    dbutils = shell.user_ns["dbutils"] = SimpleNamespace(secrets=SimpleNamespace(get=get))
    yield dbutils
    InteractiveShell.clear_instance()


@pytest.mark.thorough
def test_blocks_of_the_databricks_page_run(dbutils: object, spark: SparkSession, namespace: Namespace) -> None:
    run("databricks.md", (ROOT / "docs/how-to/databricks.md").read_text(), spark, dbutils=dbutils)
    (summary,) = namespace.entity("summaries").peek(show_progress=False)
    assert (summary.subject, summary.body) == ("order", b'{"subject":"order","count":2}')


def test_functions_of_a_page_reach_the_workers(spark: SparkSession) -> None:
    text = (
        "```python\ndef double(row):\n    return row.id * 2\n\nassert spark.range(3).rdd.map(double).sum() == 6\n```\n"
    )
    run("page.md", text, spark)


def test_failing_block_is_reported_with_page_and_line(spark: SparkSession) -> None:
    with pytest.raises(SystemError) as caught:
        run("page.md", "Text\n\n```python\nspark.range(1)\nraise SystemError\n```\n", spark)
    assert traceback.extract_tb(caught.value.__traceback__)[-1][:2] == ("page.md", 5)


@pytest.mark.thorough
def test_forgotten_stream_of_a_page_is_stopped(spark: SparkSession) -> None:
    text = '```python\nspark.readStream.format("rate").load().writeStream.format("noop").start()\n```\n'
    with pytest.raises(AssertionError, match="stops the streams"):
        run("page.md", text, spark)
    assert not spark.streams.active
