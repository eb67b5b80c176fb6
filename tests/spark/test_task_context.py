from __future__ import annotations

import os

import pytest

from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.task_context import in_flight_of_task, tasks_at_once

GIVEN = {"entity": "orders", "fullyQualifiedNamespace": "name.servicebus.windows.net"}
EXECUTORS = {"spark.master": "yarn", "spark.executor.cores": "4"}
STANDALONE = {**EXECUTORS, "spark.master": "spark://host:7077", "spark.executor.instances": "5"}
DYNAMIC = {"spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "1"}


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[3,2]"}, 3),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "local[*, 4]"}, os.cpu_count()),
        ({"spark.master": "local-cluster[2,3,1024]"}, 6),
        ({**EXECUTORS, "spark.executor.instances": "5"}, 20),
        (EXECUTORS, None),
        ({**EXECUTORS, **DYNAMIC}, None),
        ({**EXECUTORS, **DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10"}, 40),
        ({**EXECUTORS, **DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10", "spark.executor.instances": "12"}, 48),
        ({"spark.master": "yarn", "spark.executor.instances": "5"}, None),
        (STANDALONE, None),
        ({**STANDALONE, "spark.cores.max": "6"}, 6),
        ({**STANDALONE, **DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10"}, None),
        ({}, None),
    ],
)
def test_tasks_at_once_follows_the_settings(settings: dict[str, str], tasks: int | None) -> None:
    assert tasks_at_once(settings) == tasks


def test_tasks_at_once_counts_cores_per_task() -> None:
    assert tasks_at_once({"spark.master": "local[8]"}, cpus=3) == 2


def test_in_flight_outside_of_spark_is_that_of_one_task() -> None:
    assert in_flight_of_task(WriteOptions.parse(GIVEN)) == 10
    assert in_flight_of_task(WriteOptions.parse({**GIVEN, "maxInFlightTotal": "4"})) == 4
    assert in_flight_of_task(WriteOptions.parse({**GIVEN, "maxInFlight": "3", "maxInFlightTotal": "4"})) == 3
