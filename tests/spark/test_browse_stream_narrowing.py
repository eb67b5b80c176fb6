"""Expressions that narrow a read: the rows are those that Spark chooses from all messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThanOrEqual, InputPartition, LessThan

from sbnotebook.client import Namespace
from sbnotebook.model import Message
from sbnotebook.spark import load
from sbnotebook.spark.browse_stream import narrowed
from sbnotebook.spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATES = ("active", "deferred", "scheduled")
ROWS: Any = pa.table(
    {
        "sequence_number": range(1, 61),
        "state": [STATES[number % 3] for number in range(60)],
        "subject": [f"s{number % 4}" for number in range(60)],
    }
)

numbers = st.integers(-3, 65).map(str)
signs = st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "!="])
words = st.sampled_from([*STATES, "Deferred", "s1", "5"])
conditions = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(["sequence_number", "SEQUENCE_NUMBER"]), signs, numbers),
    # DuckDB takes "!=-" for one operator, which it does not know.
    st.builds("sequence_number {}{}".format, signs, numbers).map(lambda text: text.replace("!=-", "!= -")),
    st.builds("sequence_number BETWEEN {} AND {}".format, numbers, numbers),
    st.builds("{} {} '{}'".format, st.sampled_from(["state", "subject"]), signs, words),
    st.builds("state IN ('{}', '{}')".format, words, words),
    st.sampled_from(["subject IS NULL", "subject IS NOT NULL", "subject LIKE 's%'", "sequence_number IS NOT NULL"]),
)
expressions = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} and {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("({})".format, inner),
    ),
    max_leaves=5,
)


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse({"entity": "orders", "target": "emulator", **given})


def numbers_where(expression: str) -> set[int]:
    """Return the rows of an expression, from the engine of ``where``."""
    found: Any = duckdb.from_arrow(ROWS).filter(expression).project("sequence_number").fetchall()
    return {number for (number,) in found}


@given(expressions)
def test_no_row_of_an_expression_is_left_out(expression: str) -> None:
    read = narrowed(expression, options())
    first, last = int(read["fromSequenceNumber"]), int(read["toSequenceNumber"])
    covered = {
        row["sequence_number"]
        for row in ROWS.to_pylist()
        if first <= row["sequence_number"] <= last and read.get("state", row["state"]) == row["state"]
    }
    assert numbers_where(expression) <= covered


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("sequence_number > 990 AND subject = 'UA'", (991, None, None)),
        ("subject IS NOT NULL and Sequence_Number between 5 and 9", (5, 9, None)),
        ("state = 'deferred' AND sequence_number = 7", (7, 7, "deferred")),
        ("sequence_number < 5 AND sequence_number > 9", (10, 10, None)),
        ("sequence_number > 5 OR subject = 'UA'", (1, None, None)),
        ("sequence_number > 5.5", (1, None, None)),
        ("sequence_number > 5 -- AND state = 'active'", (1, None, None)),
        ("subject = 'it''s' AND sequence_number > 5", (1, None, None)),
    ],
)
def test_conditions_joined_by_and_narrow_a_read(expression: str, read: tuple[int, int | None, str | None]) -> None:
    given = options(**narrowed(expression, options()))
    last = given.to_sequence_number
    assert (given.from_sequence_number, None if last == 2**63 - 1 else last, given.state) == read


def test_options_of_the_user_narrow_further() -> None:
    own = options(fromSequenceNumber="20", toSequenceNumber="30", state="active")
    assert narrowed("sequence_number > 5 AND sequence_number < 28 AND state = 'deferred'", own) == {
        "fromSequenceNumber": "20",
        "toSequenceNumber": "27",
        "state": "active",
    }


def test_narrowed_frame_keeps_the_rows_of_each_filter(spark: SparkSession, namespace: Namespace, queue: str) -> None:
    entity = namespace.entity(queue)
    assert entity.send([Message(subject=f"s{number % 4}") for number in range(40)], show_progress=False).ok
    assert entity.defer_all(to_sequence_number=10, show_progress=False).apply(show_progress=False).ok
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        where = "state = 'deferred' AND sequence_number >= 4 AND subject <> 's1'"
        expected = load(namespace, queue, spark=spark).where(where).collect()
        assert load(namespace, queue, spark=spark, where=where).collect() == expected != []
        narrow = load(namespace, queue, spark=spark, where="sequence_number > 20", fromsequencenumber=5)
        low, high = narrow.where("sequence_number <= 22"), narrow.where("sequence_number > 39")
        assert (low.union(high).count(), narrow.count()) == (3, 20)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# ------------------------------------------------------------------ why a read implements no pushFilters


class PushingReader(DataSourceReader):
    """Reads the numbers up to 100, and leaves each filter to Spark, too, as Spark's documentation asks."""

    def __init__(self) -> None:
        self.numbers = [0, 100]

    def pushFilters(self, filters: Any) -> Iterator[Any]:  # noqa: N802
        for each in filters:
            if isinstance(each, GreaterThanOrEqual):
                self.numbers[0] = each.value
            if isinstance(each, LessThan):
                self.numbers[1] = each.value
            yield each

    def partitions(self) -> Any:
        return [InputPartition(self.numbers)]

    def read(self, partition: Any) -> Iterator[tuple[int]]:
        for number in range(*partition.value):
            yield (number,)


class Pushing(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "n long"

    def reader(self, schema: Any) -> PushingReader:  # noqa: ARG002
        return PushingReader()


@pytest.mark.thorough
def test_spark_loses_rows_where_a_reader_takes_filters(spark: SparkSession) -> None:
    """Once Spark counts 100 and 15 here, a reader may implement pushFilters."""
    spark.dataSource.register(type("Pushing", (Pushing,), {}))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("pushing").load()
        assert (frame.where("n < 5").count(), frame.count()) == (5, 5)
        assert frame.where("n >= 90").union(frame.where("n < 5")).count() == 5
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
