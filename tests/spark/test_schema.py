from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sbnotebook.client import Messages
from sbnotebook.client.frames import arrow_schema, to_arrow
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.model.amqp import Int
from sbnotebook.model.schema import COLUMNS
from sbnotebook.spark.schema import MessageBatches, message_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGE = PeekedMessage(
    entity=EntityAddress("orders"),
    sequence_number=2**60,
    enqueued_time=datetime(2013, 1, 1, 5, 15, 0, 123000, tzinfo=UTC),
    expires_at=datetime.max.replace(tzinfo=UTC),
    body=b"\x00\xff",
    application_properties={"carrier": "UA", "delay": Int(-5)},
)


def test_spark_sees_the_same_columns_as_arrow() -> None:
    assert message_schema().fieldNames() == [column.name for column in COLUMNS]
    assert to_arrow_schema(message_schema(), timezone="UTC") == arrow_schema()


def test_a_batch_is_what_arrow_makes_of_the_messages() -> None:
    batch = MessageBatches(message_schema()).of([MESSAGE, MESSAGE])
    assert batch.schema.equals(to_arrow_schema(message_schema(), timezone="UTC"))
    assert batch.to_pylist() == to_arrow([MESSAGE, MESSAGE]).to_pylist()


def test_a_batch_has_the_columns_that_are_wanted_in_their_order() -> None:
    wanted = StructType([StructField("subject", StringType()), StructField("sequence_number", LongType())])
    batch = MessageBatches(wanted).of([MESSAGE])
    assert batch.to_pylist() == [{"subject": None, "sequence_number": 2**60}]
    assert batch.schema.equals(to_arrow_schema(wanted, timezone="UTC"))


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("carrier", StringType()), "There is no message column 'carrier': entity, sequence_number, "),
        (StructField("body", StringType()), "The message column body is a binary that can be null"),
        (StructField("subject", StringType(), nullable=False), "The message column subject is a string that can be"),
    ],
)
def test_other_columns_are_refused(field: StructField, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        MessageBatches(StructType([field]))


@pytest.mark.parametrize("timezone", ["UTC", "America/New_York"])
def test_messages_to_spark_have_the_same_columns_and_moments(spark: SparkSession, timezone: str) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", timezone)
    frame = Messages([MESSAGE]).to_spark(own)
    assert frame.schema == message_schema()
    assert frame.toArrow().cast(arrow_schema()).to_pylist() == to_arrow([MESSAGE]).to_pylist()
    assert Messages().to_spark(own).schema == message_schema()
