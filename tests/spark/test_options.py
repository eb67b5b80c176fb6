from __future__ import annotations

import pickle

import pytest

from sbnotebook.errors import ConfigurationError, InvalidEntityAddressError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.spark.options import (
    NamespaceTarget,
    ReadOptions,
    StreamOptions,
    WriteOptions,
    hidden_options,
    read_or_stream,
    secrets_in,
)

KEY = "bXkta2V5LXRoYXQtbm9ib2R5LW1heS1zZWU="
CONNECTION_STRING = f"Endpoint=sb://name.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey={KEY}"
GIVEN = {"entity": "orders", "connectionString": CONNECTION_STRING}


def test_options_are_read_in_any_spelling() -> None:
    reading = {"FROMSEQUENCENUMBER": "5", "tosequencenumber": "90", "Partitions": " 4 ", "state": "Deferred"}
    assert ReadOptions.parse({**GIVEN, **reading}) == ReadOptions(
        entity=EntityAddress("orders"),
        namespace=NamespaceTarget(CONNECTION_STRING),
        from_sequence_number=5,
        to_sequence_number=90,
        partitions=4,
        state=MessageState.DEFERRED,
    )
    writing = WriteOptions.parse({**GIVEN, "maxInFlight": "3", "batchSize": "1", "rate": "2.5"})
    assert (writing.max_in_flight, writing.batch_size, writing.rate) == (3, 1, 2.5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"maxInFlight": "1"}, r"maxInFlight is an option of frame.write, and this is spark.read"),
        ({"maxOffsetsPerTrigger": "5"}, r"no option 'maxOffsetsPerTrigger' in spark.read; use maxMessages\."),
        ({"kafka.bootstrap.servers": "x"}, r"use fullyQualifiedNamespace"),
        ({"zebra": "x"}, r"There is no option 'zebra' in spark.read; there are entity, "),
        ({"maxMessages": "ten"}, r"maxMessages is a whole number, 1 or more, not 'ten'"),
        ({"maxMessages": "0"}, r"maxMessages is a whole number"),
        ({"maxMessages": "9" * 5000}, r"maxMessages is a whole number"),
        ({"partitions": "1001"}, r"partitions is a whole number from 1 to 1,000, not '1001'"),
        ({"fromSequenceNumber": "-1"}, r"fromSequenceNumber is a whole number"),
        ({"fromSequenceNumber": "9223372036854775808"}, r"fromSequenceNumber is a whole number"),
        ({"fromSequenceNumber": "9", "toSequenceNumber": "8"}, r"toSequenceNumber is not before"),
        ({"maxMessages": "5", "partitions": "2"}, r"maxMessages holds for one partition only"),
        ({"target": "emulator"}, r"Give exactly one of the options connectionString, secret.connectionString"),
        ({"connectionString": ""}, r"Give exactly one of the options"),
        (
            {"connectionString": "name.servicebus.windows.net"},
            r"connectionString holds a whole connection string, ",
        ),
        ({"connectionString": "Endpoint=sb://name"}, r"The connection string has neither a SharedAccessKey"),
    ],
)
def test_wrong_read_options_are_refused(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refusal:
        ReadOptions.parse({**GIVEN, **wrong})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"entity": "orders/$dlq"}, r"Messages cannot be sent to orders/\$dlq"),
        ({"entity": "events/subscriptions/audit"}, r"Messages cannot be sent to events/subscriptions/audit"),
        ({"partitions": "2"}, r"partitions is an option of spark.read, and this is frame.write"),
        (
            {"startingOffsets": "1"},
            r"fromSequenceNumber of spark.read or fromSequenceNumber of sp",
        ),
        ({"rate": "0"}, r"rate is a number of messages a second above 0, not '0'"),
        ({"rate": "nan"}, r"rate is a number"),
        ({"rate": "fast"}, r"rate is a number .* not 'fast'"),
        ({"maxInFlight": "0"}, r"maxInFlight is a whole number"),
    ],
)
def test_wrong_write_options_are_refused(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        WriteOptions.parse({**GIVEN, **wrong})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"mode": "drain"}, r"mode is browse or consume, not 'drain'"),
        ({"maxMessagesPerTriger": "5"}, r"did you mean maxMessagesPerTrigger\?"),
        ({"maxBytesPerTrigger": "0"}, r"maxBytesPerTrigger is a number of bytes such as 500000, 64k, 16m or 1g"),
        ({"maxBytesPerTrigger": "16 megabytes"}, r"not '16 megabytes'"),
        ({"orphans": "adopt"}, r"orphans has no meaning with mode=browse: leave it out"),
        ({"mode": "consume", "fromSequenceNumber": "7"}, r"fromSequenceNumber has no meaning with mode=consume"),
        ({"mode": "consume", "orphans": "keep"}, r"orphans is report or adopt or ignore, not 'keep'"),
        ({"mode": "consume", "failOnDataLoss": "maybe"}, r"failOnDataLoss is true or false, not 'maybe'"),
        ({"toSequenceNumber": "7"}, r"toSequenceNumber is an option of spark.read, and this is spark.readStream"),
        (
            {"maxEventsPerTrigger": "7"},
            r"'maxEventsPerTrigger' in spark.readStream; use maxMessagesPerTrigger",
        ),
        ({"maxRowsPerTrigger": "7"}, r"use maxMessagesPerTrigger"),
    ],
)
def test_wrong_stream_options_are_refused(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        StreamOptions.parse({**GIVEN, **wrong})


def test_stream_options_are_read() -> None:
    plain = StreamOptions.parse(GIVEN)
    assert (plain.mode, plain.from_sequence_number, plain.max_messages, plain.max_bytes) == (
        "browse",
        1,
        10_000,
        None,
    )
    assert StreamOptions.parse({**GIVEN, "fromSequenceNumber": "Latest"}).from_sequence_number is None
    consuming = {"mode": "Consume", "maxBytesPerTrigger": "16MB", "orphans": "adopt", "failondataloss": "FALSE"}
    options = StreamOptions.parse({**GIVEN, **consuming})
    assert (options.mode, options.max_bytes, options.orphans) == ("consume", 16 << 20, "adopt")
    assert not options.fail_on_data_loss


def test_settle_options_accept_a_sub_queue() -> None:
    options = WriteOptions.parse({**GIVEN, "entity": "orders/$dlq", "operation": "settle", "archive": "false"})
    assert (options.operation, options.archived) == ("settle", False)
    with pytest.raises(ConfigurationError, match="rate has no meaning with operation=settle"):
        WriteOptions.parse({**GIVEN, "operation": "settle", "rate": "5"})
    with pytest.raises(ConfigurationError, match="archive has no meaning with operation=send"):
        WriteOptions.parse({**GIVEN, "archive": "false"})


def test_load_knows_the_options_of_reads_and_streams() -> None:
    assert read_or_stream({**GIVEN, "maxMessages": "5"}) == ReadOptions.parse({**GIVEN, "maxMessages": "5"})
    consuming = {**GIVEN, "mode": "consume", "partitions": "2"}
    assert read_or_stream(consuming) == StreamOptions.parse(consuming)
    with pytest.raises(ConfigurationError, match=r"in spark.read and spark.readStream; did you mean partitions\?"):
        read_or_stream({**GIVEN, "partition": "5"})


@pytest.mark.parametrize("name", ["connectionString", "secret.connectionString", "target"])
def test_connection_string_options_are_equivalent(name: str) -> None:
    connection = ReadOptions.parse({"entity": "orders", name: CONNECTION_STRING}).namespace.connection()
    assert (connection.host, connection.connection_string) == ("name.servicebus.windows.net", CONNECTION_STRING)


def test_host_name_goes_with_a_credential() -> None:
    given = {"entity": "orders", "fullyQualifiedNamespace": "name.servicebus.windows.net"}
    connection = ReadOptions.parse(given).namespace.connection()
    assert connection.host == "name.servicebus.windows.net"
    assert connection.credential is not None
    with pytest.raises(ConfigurationError, match="fullyQualifiedNamespace holds a host name"):
        ReadOptions.parse({"entity": "orders", "fullyQualifiedNamespace": CONNECTION_STRING})


def test_service_credential_is_named_beside_the_host() -> None:
    given = {"entity": "orders", "fullyQualifiedNamespace": "name.servicebus.windows.net", "Credential": "bus reader"}
    target = NamespaceTarget("credential:bus reader@name.servicebus.windows.net")
    for kind in (ReadOptions, StreamOptions, WriteOptions):
        assert kind.parse(given).namespace == target
    with pytest.raises(ConfigurationError, match="credential is the name of a service credential of Unity"):
        ReadOptions.parse({**GIVEN, "credential": "bus reader"})


def test_env_target_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"entity": "orders", "target": "env:TARGET_OF_A_TEST"}
    monkeypatch.delenv("TARGET_OF_A_TEST", raising=False)
    with pytest.raises(ConfigurationError, match="TARGET_OF_A_TEST: set it before the Spark session starts"):
        ReadOptions.parse(given)
    monkeypatch.setenv("TARGET_OF_A_TEST", CONNECTION_STRING)
    assert ReadOptions.parse(given).namespace == NamespaceTarget(CONNECTION_STRING)
    monkeypatch.setenv("TARGET_OF_A_TEST", "env:TARGET_OF_A_TEST")
    with pytest.raises(ConfigurationError, match="TARGET_OF_A_TEST"):
        ReadOptions.parse(given)


def test_options_are_pickled_and_show_no_secret() -> None:
    for options in (ReadOptions.parse(GIVEN), WriteOptions.parse(GIVEN)):
        assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 (as Spark does it)
        assert KEY not in repr(options)


def test_misplaced_connection_string_is_not_repeated() -> None:
    for name in ("entity", "maxMessages", "state"):
        with pytest.raises(ConfigurationError) as refusal:
            ReadOptions.parse({**GIVEN, name: CONNECTION_STRING})
        assert KEY[:8] not in str(refusal.value)
    with pytest.raises(InvalidEntityAddressError):  # where nothing was taken out, the error stays what it is
        ReadOptions.parse({**GIVEN, "entity": "orders/$nothing"})


def test_emulator_target_is_refused_on_another_machine() -> None:
    elsewhere = NamespaceTarget("emulator", machine="driver.invalid")
    with pytest.raises(ConfigurationError, match="runs on the machine of Spark's driver only"):
        elsewhere.connection()


def test_secret_under_a_misspelt_option_is_found() -> None:
    assert KEY.rstrip("=") in secrets_in(hidden_options({"conectionString": CONNECTION_STRING}))
    assert secrets_in(hidden_options({"failuresPath": "/lake/date=2020", "entity": "orders"})) == []


def test_options_of_spark_itself_are_ignored() -> None:
    own = {"checkpointLocation": "/lake/checkpoint", "queryName": "repaired"}
    assert WriteOptions.parse({**GIVEN, **own}) == WriteOptions.parse(GIVEN)
