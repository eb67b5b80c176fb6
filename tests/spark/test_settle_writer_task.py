from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from sbnotebook.client import Namespace
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.settle_writer import SettleWriter

CLOUDPICKLE: Any = cloudpickle

SCHEMA = StructType().add("sequence_number", "long").add("decision", "string")


@pytest.mark.parametrize("is_stream", [True, False])
def test_settle_task_waits_for_locks_of_a_killed_run(
    connection_string: str, namespace: Namespace, is_stream: bool
) -> None:
    queue = f"queue-{uuid4().hex[:8]}"
    namespace.create_queue(queue, lock_duration=timedelta(seconds=5 if is_stream else 300))
    entity = namespace.entity(queue)
    assert entity.send(["one", "two"], show_progress=False).ok
    assert entity.defer_all(show_progress=False).apply(show_progress=False).settled == 2
    with ServiceBusClient.from_connection_string(connection_string) as sdk, sdk.get_queue_receiver(queue) as killed:
        assert len(killed.receive_deferred_messages([1])) == 1
    given = {"entity": queue, "connectionString": connection_string, "operation": "settle", "archive": "false"}
    writer = SettleWriter(WriteOptions.parse(given), SCHEMA, is_stream=is_stream)
    rows = pa.RecordBatch.from_pydict({"sequence_number": [1, 2], "decision": ["complete"] * 2})
    result = pickle.loads(CLOUDPICKLE.dumps(writer)).write(iter([rows]))  # noqa: S301 (as Spark does it)
    # Only streams are repeated here, so a lock belongs to another program, and is reported at once.
    assert (result.done, result.failed) == ((2, 0) if is_stream else (1, 1)), result.first_failure
