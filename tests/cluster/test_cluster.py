"""Every operation on a real cluster whose machines share only the network: a short part of ``make check-cluster``."""

from __future__ import annotations

import json
import sys

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.cluster.nodes import Cluster

pytestmark = [
    pytest.mark.thorough,  # six processes of Java; tests/spark shows the same on one machine
    pytest.mark.skipif(sys.platform == "win32", reason="Spark's scripts here are those of Unix"),
]
COUNT = 200


def test_each_operation_works_with_the_wheel_alone(cluster: Cluster, emulator: RunningEmulator) -> None:
    printed, complaints = cluster.run("every_operation.py", SERVICEBUS=emulator.connection_string)
    said = json.loads(printed.splitlines()[-1])
    found = {
        worker.folder.name for place in said["places"] for worker in cluster.workers if str(worker.folder) in place
    }
    assert found == {"worker0", "worker1"}, "each worker uses the wheel in its own environment"
    assert len(said["places"]) == len(found)
    expected = sorted(f"m{number}" for number in range(COUNT))
    assert said["read"] == expected
    assert said["consumed"] == expected
    assert f"INFO sbnotebook.spark.task_writer: {COUNT} messages were sent to orders, 0 failed" in complaints
    assert said["settled"] == {"settled": COUNT}
    counts = emulator.counts("orders")
    assert (counts.active, counts.deferred) == (0, 0)
