"""A declarative pipeline, run by ``spark-pipelines``, with the file of the guide."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import running
from sbnotebook.settlement import Connection

GUIDE = Path(__file__).parents[2] / "docs/how-to/spark-pipelines.md"
BIN = Path(sys.executable).parent
parquet: Any = pyarrow.parquet


def pipeline(folder: Path, connection_string: str) -> Callable[..., None]:
    """Write the files of the guide, and return what runs ``spark-pipelines``."""
    spec, tables = re.findall(r"```(?:yaml|python)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (folder / "tables").mkdir()
    (folder / "spark-pipeline.yml").write_text(spec.replace("file:///data/shop", folder.as_uri()))
    (folder / "tables" / "orders.py").write_text(tables)
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SERVICEBUS_CONNECTION_STRING": connection_string,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder.as_uri()}/warehouse",
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]

    def run(*arguments: str) -> None:
        command = [str(BIN / "spark-pipelines"), *given, *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]

    return run


def bodies(folder: Path, table: str) -> list[str]:
    files = (folder / "warehouse" / table).glob("*.parquet")
    return sorted(body for file in files for body in parquet.read_table(file)["body_text"].to_pylist())


@pytest.mark.thorough
def test_a_pipeline_browses_and_consumes_each_message_once(tmp_path: Path) -> None:
    with (
        running(queues=["orders", "work"]) as emulator,
        Namespace(Target(Connection(emulator.connection_string), "a test")) as namespace,
    ):
        run = pipeline(tmp_path, emulator.connection_string)
        orders, work = namespace.entity("orders"), namespace.entity("work")
        for entity in (orders, work):
            entity.send(["a", "b"])
        run("dry-run")
        assert (len(orders.peek()), len(work.peek())) == (2, 2)

        run("run")
        assert (len(orders.peek()), len(work.peek())) == (2, 0)
        assert bodies(tmp_path, "looked_at") == bodies(tmp_path, "taken") == bodies(tmp_path, "totals") == ["a", "b"]

        # A full refresh of all browses again, and keeps the table that consumes.
        with orders.lock(1) as batch:
            batch.complete()
        work.send(["c"])
        run("run", "--full-refresh-all")
        assert len(work.peek()) == 0
        assert bodies(tmp_path, "looked_at") == ["b"]
        assert bodies(tmp_path, "taken") == bodies(tmp_path, "totals") == ["a", "b", "c"]
