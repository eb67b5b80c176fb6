from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from sbnotebook.errors import ConfigurationError
from sbnotebook.spark.schema import message_schema
from sbnotebook.spark.send_writer import check_sent_columns

TEXT = StringType()


def frame(**columns: str | DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        message_schema(),
        frame(body="binary"),
        frame(body="string", message_id="string", id="long", parsed=StructType().add("a", "integer")),
        frame(body_text="string", application_properties=MapType(TEXT, IntegerType()), time_to_live_ms="integer"),
        frame(carrier="string", state="string", messageId="string"),
        frame(body="string", outcome_status="string"),
        frame(body="string", subject=NullType()),
        frame(body="string", key="string", value="string"),
        frame(key="string", value="string", carrier="string"),
    ],
    ids=range(9),
)
def test_what_fits_passes(schema: StructType) -> None:
    check_sent_columns(schema)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (frame(body="integer"), "The column body has the type int, but it must be binary or a string: cast it."),
        (frame(body_text="binary"), "The column body_text has the type binary, but it must be a string"),
        (frame(body="string", message_id="long"), "The column message_id has the type bigint, but it must be a str"),
        (frame(body="string", session_id=ArrayType(TEXT)), "The column session_id has the type array<string>, but"),
        (frame(body="string", scheduled_enqueue_time="string"), "scheduled_enqueue_time .* must be a timestamp: cast"),
        (frame(body="string", scheduled_enqueue_time="timestamp_ntz"), "scheduled_enqueue_time .* must be a timestamp"),
        (frame(body="string", time_to_live_ms="double"), "time_to_live_ms .* must be a whole number"),
        (frame(body="string", application_properties="string"), "application_properties .* must be a map of strings"),
        (
            frame(body="string", application_properties=MapType(IntegerType(), TEXT)),
            "application_properties .* must be a map of",
        ),
        (
            frame(body="string", application_properties=MapType(TEXT, DecimalType(5, 2))),
            "application_properties .* numbers",
        ),
        (
            frame(body="string", application_property_types=MapType(TEXT, IntegerType())),
            "a map of strings to strings: cast it",
        ),
        (frame(body="string", extras="string"), "extras .* must be binary"),
        (frame(body="string", sesion_id="string"), "The column sesion_id .*rename it to session_id, or drop it"),
        (
            frame(message_id="string", Body="binary"),
            "The column Body would become a part of a JSON body: rename it to body, or",
        ),
        (frame(bodyText="string"), "The column bodyText would become .*: rename it to body_text"),
        (frame(message_id="string", value="string", topic="string"), "The columns value, topic are those of Kafka"),
        (frame(message_id="string"), "nothing to send: give it a column body or body_text, or other columns"),
        (frame(), "nothing to send"),
        (
            StructType().add("a", "integer").add("a", "integer"),
            "There are several columns a: rename or drop all but one",
        ),
        (
            StructType().add("since", YearMonthIntervalType()),
            "The column since cannot be sent: .* interval year to month",
        ),
    ],
    ids=range(20),
)
def test_wrong_columns_are_named(schema: StructType, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        check_sent_columns(schema)
