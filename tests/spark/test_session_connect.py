"""A session of Spark Connect, which is how Databricks' shared and serverless compute talk to Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import connect_client
from tests.spark.planted_secrets import files, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

WRONG = "d3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmc="
CONTROL = "Y29udHJvbC1jb250cm9sLWNvbnRyb2wtY29udHI="


@pytest.fixture(scope="module")
def said(
    spark: SparkSession, connection_string: str, secret: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """What a client of the shared session's own Connect server said, and the folder that it wrote to."""
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001
    server = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    port = getattr(server, "MODULE$").localPort()
    folder = tmp_path_factory.mktemp("connect")
    elsewhere = connection_string.replace("127.0.0.1", "localhost")
    wrong, control = (elsewhere.replace(secret, key) for key in (WRONG, CONTROL))
    command = [sys.executable, "-m", connect_client.__name__, str(folder), f"sc://127.0.0.1:{port}"]
    result = subprocess.run(
        [*command, connection_string, wrong, control], capture_output=True, text=True, check=False, timeout=540
    )
    assert result.returncode == 0, result.stderr
    return {"stdout": result.stdout.encode(), "stderr": result.stderr.encode(), **files(folder)}


def test_all_features_work_with_spark_connect(said: dict[str, bytes]) -> None:
    errors = said["stdout"].decode()
    assert errors.count("ServiceBusAuthenticationError") >= 3, errors
    assert "There is no option 'partition' in spark.read and spark.readStream; did you mean partitions?" in errors


def test_spark_connect_shows_options_but_no_registered_secret(
    said: dict[str, bytes], spark: SparkSession, event_log: Path, secret: str
) -> None:
    spark.range(1).count()  # what happened before is written when a later job has ended
    events = files(event_log)
    assert places([CONTROL], events), "Spark Connect shows options, and a secret would be seen here."
    assert not places([secret, WRONG], said | events)
    assert not places([CONTROL], said), "Not even then is it in an error."
