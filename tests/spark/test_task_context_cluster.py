"""What tasks find on a cluster of Spark, which runs on this machine in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

pytestmark = pytest.mark.thorough

WRITE_WITH_SPECULATION: Final = """
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sbnotebook.emulator import running
from sbnotebook.spark import register

settings = {"spark.speculation": "true", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
with running(queues=["orders"]) as emulator:
    spark = SparkSession.builder.master("local-cluster[1,1,1024]").config(map=settings).getOrCreate()
    register(spark)
    write = spark.createDataFrame([("a",)], "body string").write.format("servicebus").mode("append")
    write = write.options(entity="orders", connectionString=emulator.connection_string)
    try:
        write.save()
    except PySparkException as error:
        print("refused:", error)
    print(emulator.counts("orders").active)
    write.option("allowSpeculation", "true").save()
    print(emulator.counts("orders").active)
    spark.stop()
"""


def test_speculation_is_refused_unless_allowed() -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", WRITE_WITH_SPECULATION]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert "spark.speculation is on, so Spark may run a task twice at once" in ended.stdout
    *_, refused, allowed = ended.stdout.splitlines()
    assert (refused, allowed) == ("0", "1")
