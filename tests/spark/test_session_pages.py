"""Every Python block of the pages about Spark runs, in the session that all tests of this folder share."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.house.test_docs import ROOT, RUN, needs_spark, script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(page: str, text: str, spark: SparkSession) -> None:
    before = {query.runId for query in spark.streams.active}
    try:
        # Compiled under the page's name, so that a traceback names it; what it defines is pickled by value.
        exec(compile(script(text), page, "exec"), {"__name__": "__main__", "spark": spark})  # noqa: S102
        assert {query.runId for query in spark.streams.active} <= before, "A page stops the streams that it starts."
    finally:
        for query in spark.streams.active:
            if query.runId not in before:
                query.stop()


@pytest.mark.parametrize("page", [path for path in RUN if needs_spark(path)], ids=lambda path: path.name)
def test_the_blocks_of_a_page_run(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(str(page.relative_to(ROOT)), page.read_text(), spark)


def test_a_page_has_a_session_and_its_functions_reach_the_workers(spark: SparkSession) -> None:
    text = (
        "```python\ndef double(row):\n    return row.id * 2\n\nassert spark.range(3).rdd.map(double).sum() == 6\n```\n"
    )
    run("page.md", text, spark)


def test_a_failing_block_is_seen_with_its_page_and_line(spark: SparkSession) -> None:
    with pytest.raises(SystemError) as caught:
        run("page.md", "Text\n\n```python\nspark.range(1)\nraise SystemError\n```\n", spark)
    assert traceback.extract_tb(caught.value.__traceback__)[-1][:2] == ("page.md", 5)


def test_a_stream_that_a_page_forgets_is_stopped_and_told(spark: SparkSession) -> None:
    text = '```python\nspark.readStream.format("rate").load().writeStream.format("noop").start()\n```\n'
    with pytest.raises(AssertionError, match="stops the streams"):
        run("page.md", text, spark)
    assert not spark.streams.active
