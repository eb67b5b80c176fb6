from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sbnotebook.amqp import Int
from sbnotebook.analysis.frames import arrow_schema, to_arrow
from sbnotebook.client import Messages
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message, PeekedMessage
from sbnotebook.model.schema import COLUMNS
from sbnotebook.settlement import Page, PeekCursor
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.spark.schema import MessageBatches, message_schema
from sbnotebook.testing.strategies import messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MESSAGE = PeekedMessage(
    entity=EntityAddress("orders"),
    sequence_number=2**60,
    enqueued_time=datetime(2013, 1, 1, 5, 15, 0, 123000, tzinfo=UTC),
    expires_at=datetime.max.replace(tzinfo=UTC),
    body=b"\x00\xff",
    application_properties={"carrier": "UA", "delay": Int(-5)},
)
SENT = Message(
    subject="bill",
    time_to_live=timedelta(days=3),
    body=b"\x00\xff",
    application_properties={"carrier": "UA", "delay": Int(-5)},
)


def test_message_schema_has_the_columns_of_arrow() -> None:
    assert message_schema().fieldNames() == [column.name for column in COLUMNS]
    assert to_arrow_schema(message_schema(), timezone="UTC") == arrow_schema()


def batch_of(batches: MessageBatches, payloads: list[bytes]) -> pa.RecordBatch:
    assert batches.add(Page(EntityAddress("orders"), 1, payloads), PeekCursor()) == []
    (batch,) = batches.rest()
    return batch


def test_message_batches_equal_the_arrow_table() -> None:
    payload = payload_of(SENT)
    batch = batch_of(MessageBatches(message_schema()), [payload, payload])
    assert batch.schema.equals(to_arrow_schema(message_schema(), timezone="UTC"))
    page = Page(EntityAddress("orders"), 1, [payload, payload])
    assert batch.to_pylist() == to_arrow(page.messages()).to_pylist()


def test_message_batches_have_the_chosen_columns_in_order() -> None:
    wanted = StructType([StructField("subject", StringType()), StructField("sequence_number", LongType())])
    batch = batch_of(MessageBatches(wanted), [payload_of(SENT)])
    assert batch.to_pylist() == [{"subject": "bill", "sequence_number": 1}]
    assert batch.schema.equals(to_arrow_schema(wanted, timezone="UTC"))


@given(
    st.sets(st.sampled_from([column.name for column in COLUMNS]), min_size=1),
    st.lists(messages(), min_size=1, max_size=3),
)
def test_sections_are_enough_for_the_columns(wanted: set[str], written: list[Message]) -> None:
    schema = StructType([field for field in message_schema().fields if field.name in wanted])
    payloads = [payload_of(message) for message in written]
    in_part, whole = (batch_of(MessageBatches(chosen), payloads) for chosen in (schema, message_schema()))
    assert in_part.to_pylist() == [{name: row[name] for name in wanted} for row in whole.to_pylist()]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("carrier", StringType()), "There is no message column 'carrier': entity, sequence_number, "),
        (StructField("body", StringType()), "The column body is a binary that can be null"),
        (StructField("subject", StringType(), nullable=False), "The column subject is a string that can be"),
    ],
)
def test_other_columns_are_refused(field: StructField, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        MessageBatches(StructType([field]))


@pytest.mark.parametrize("timezone", ["UTC", "America/New_York"])
def test_to_spark_keeps_columns_and_times(spark: SparkSession, timezone: str) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", timezone)
    frame = Messages([MESSAGE]).to_spark(own)
    assert frame.schema == message_schema()
    assert frame.toArrow().cast(arrow_schema()).to_pylist() == to_arrow([MESSAGE]).to_pylist()
    assert Messages().to_spark(own).schema == message_schema()
