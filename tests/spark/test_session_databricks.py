"""The notebook that users import into Databricks, cell by cell, with stand-ins for what Databricks gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from sbnotebook.client import Namespace
from sbnotebook.model import Message
from tests.databricks import DbUtils, cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

SOURCE = (Path(__file__).parents[2] / "docs/how-to/databricks/dead_letters.py").read_text()
SECRET = ("messaging", "shop")

Run = Callable[..., str]


@pytest.fixture
def run(spark: SparkSession, connection_string: str) -> Iterator[Run]:
    """Runs all cells of the notebook with these parameters, as a job does; what they print."""
    shell: Any = InteractiveShell.instance(config=Config(HistoryManager={"hist_file": ":memory:"}))
    installed: list[str] = []
    shell.register_magic_function(installed.append, "line", "pip")

    def run(**parameters: str) -> str:
        shell.user_ns["spark"] = spark
        shell.user_ns["dbutils"] = DbUtils({SECRET: connection_string}, variables=shell.user_ns, **parameters)
        installed.clear()
        captured: Any
        with capture_output() as captured:
            for cell in cells(SOURCE):
                if not cell.startswith("%md"):
                    shell.run_cell(cell, store_history=True).raise_error()
        assert installed == ["install /Volumes/CATALOG/SCHEMA/VOLUME/sbnotebook-0.1.0-py3-none-any.whl"]
        assert "UsageError" not in captured.stderr
        return captured.stdout + "".join(output.data["text/plain"] for output in captured.outputs)

    yield run
    shell.run_cell("%sb_connect env:NOT_SET", silent=True)
    InteractiveShell.clear_instance()


def dead_letters(namespace: Namespace, queue: str) -> None:
    entity = namespace.entity(queue)
    entity.send([Message(body=b"%d" % number) for number in range(3)], show_progress=False)
    with entity.lock(2) as batch:
        batch.dead_letter(reason="Negative")


def test_databricks_notebook_with_a_secret_sends_nothing(run: Run, namespace: Namespace, queue: str) -> None:
    dead_letters(namespace, queue)
    shown = run(target="secret:messaging/shop", queue=queue)
    assert "source        a Databricks secret" in shown
    assert f"{queue}/$dlq: 2 messages" in shown
    assert "|          Negative|    2|" in shown
    assert len(namespace.entity(f"{queue}/$dlq").peek(show_progress=False)) == 2


def test_databricks_notebook_resubmits_and_keeps_its_journal(
    run: Run, namespace: Namespace, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    given = {"target": "secret:messaging/shop", "queue": queue, "keep": str(volume)}
    dead_letters(namespace, queue)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "first"))
    first = run(**given, send_back="yes")
    assert "Resubmitted 2 messages" in first, first
    assert not namespace.entity(f"{queue}/$dlq").peek(show_progress=False)
    assert len(namespace.entity(queue).peek(show_progress=False)) == 3

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "second"))
    second = run(**given)
    assert "resubmit: removed" in second, second
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "second/sbnotebook").glob("*.sqlite")} == {0o600}


def test_databricks_notebook_runs_on_the_drivers_emulator(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sbnotebook.emulator.process import stop

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    try:
        shown = run()
    finally:
        stop()
    assert "|          Negative|    2|" in shown
    assert "orders/$dlq: 2 messages" in shown
