from __future__ import annotations

import subprocess
import sys
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql.types import StructType

from sbnotebook.spark.consume_stream import ConsumeStream
from sbnotebook.spark.options import ReadOptions, StreamOptions, WriteOptions
from sbnotebook.spark.peek_reader import PeekReader
from sbnotebook.spark.schema import message_schema
from sbnotebook.spark.send_writer import SendWriter
from sbnotebook.spark.settle_writer import SettleWriter
from sbnotebook.spark.source import ServiceBusDataSource

HOST: Final = "name.servicebus.windows.net"
GIVEN: Final = {"entity": "orders", "fullyQualifiedNamespace": HOST}
DECISIONS: Final = StructType().add("sequence_number", "long").add("decision", "string")
ON_A_WORKER: Final = """
import pickle, sys
for package in sys.argv[1:]:
    sys.modules[package] = None
for content in sys.stdin.read().split():
    print(type(pickle.loads(bytes.fromhex(content))).__name__)
"""


def arrived(*objects: object, without: str = "") -> subprocess.CompletedProcess[str]:
    """Unpickle objects in another Python, as a worker of Spark does."""
    pickled: Any = cloudpickle
    content = " ".join(pickled.dumps(each).hex() for each in objects)
    command = [sys.executable, "-c", ON_A_WORKER, *filter(None, [without])]
    return subprocess.run(command, input=content, capture_output=True, text=True, check=False, timeout=120)


def shipped() -> list[object]:
    schema = StructType([message_schema()["message_id"], message_schema()["body"]])
    return [
        ServiceBusDataSource({**GIVEN}),
        PeekReader(ReadOptions.parse(GIVEN), schema),
        ConsumeStream(StreamOptions.parse({**GIVEN, "mode": "consume"}), message_schema()),
        SendWriter(WriteOptions.parse(GIVEN), schema, is_stream=False),
        SettleWriter(WriteOptions.parse({**GIVEN, "operation": "settle"}), DECISIONS, is_stream=False),
    ]


def test_shipped_objects_arrive_as_they_are() -> None:
    ended = arrived(*shipped())
    assert ended.stdout.split() == [
        "ServiceBusDataSource",
        "PeekReader",
        "ConsumeStream",
        "SendWriter",
        "SettleWriter",
    ], ended.stderr


def test_missing_package_on_a_worker_is_named_in_a_sentence() -> None:
    for each in shipped():
        ended = arrived(each, without="sbnotebook")
        last = ended.stderr.rstrip().splitlines()[-1]
        assert last.startswith(f"RuntimeError: The Python of this Spark worker, {sys.executable}, has no package 'sbno")
        assert "During handling" not in ended.stderr
    assert "has no package 'azure" in arrived(shipped()[1], without="azure.servicebus").stderr
