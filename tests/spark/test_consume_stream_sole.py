from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import StreamingQueryException

from sbnotebook.client import Namespace
from sbnotebook.model import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLAIM: Final = """
import sys
from sbnotebook.model import EntityAddress
from sbnotebook.spark.consume_stream import be_sole_consumer

for _ in range(2):
    be_sole_consumer("shop.servicebus.windows.net", EntityAddress.parse(sys.argv[1]), 0.1)
print("alone", flush=True)
sys.stdin.read()
"""


def claiming(entity: str) -> subprocess.Popen[str]:
    """A process of the same parent as the others, as the sources of one driver are."""
    command = [sys.executable, "-c", CLAIM, entity]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=60)[1]


def test_one_process_of_a_driver_consumes_an_entity_at_a_time() -> None:
    entity = f"orders-{uuid.uuid4().hex[:8]}"
    first = claiming(entity)
    try:
        assert said(first) == "alone"
        assert "Another stream of this Spark driver consumes ORDERS" in ended(claiming(entity.upper()))
        other = claiming(f"{entity}/$dlq")
        assert said(other) == "alone"
        ended(other)
    finally:
        first.kill()
        ended(first)
    following = claiming(entity)
    assert said(following) == "alone"
    ended(following)


def test_consume_joined_with_itself_is_refused_before_it_locks(
    stream: Callable[..., DataFrame], namespace: Namespace, queue: str, checkpoint: str
) -> None:
    assert namespace.entity(queue).send([Message(message_id=f"m{n}") for n in range(20)]).ok
    frame = stream(queue, "message_id string, sequence_number long", mode="consume")
    pairs = frame.alias("a").join(frame.alias("b"), "message_id")
    writer = pairs.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="a join of a stream with itself finds no pairs"):
        query.awaitTermination(120)
    assert [message.delivery_count for message in namespace.entity(queue).peek()] == [0] * 20
    with namespace.entity(queue).lock(20) as batch:
        assert len(batch.messages) == 20
