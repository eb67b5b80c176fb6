from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import StructType

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS, FailuresFolder

SCHEMA = StructType().add("body", "string")
LOST = Outcome(
    OutcomeStatus.UNCONFIRMED, "send", EntityAddress("orders"), condition="timeout", description="No answer."
)


def prepared(path: Path | str) -> FailuresFolder:
    folder = FailuresFolder.prepared(str(path), SCHEMA, is_stream=False)
    return pickle.loads(pickle.dumps(folder))  # noqa: S301 (as Spark does it)


def rows_in(path: Path) -> list[dict[str, Any]]:
    untyped: Any = parquet
    return untyped.read_table(path).to_pylist()


def batch(*bodies: str, **others: str) -> pa.RecordBatch:
    columns: dict[str, Any] = {"body": list(bodies), **{name: [value] * len(bodies) for name, value in others.items()}}
    return pa.RecordBatch.from_pydict(columns)


def test_failed_rows_are_written_with_their_outcomes(tmp_path: Path) -> None:
    file = prepared(tmp_path / "a folder" / "in another").file()
    file.add(batch("a", "b"), [LOST, LOST])
    file.add(batch("c"), [LOST])
    assert rows_in(tmp_path / "a folder" / "in another") == []  # unfinished files are not seen
    file.finish()
    ends = dict(zip(OUTCOME_COLUMNS, ("unconfirmed", "timeout", "No answer."), strict=True))
    assert rows_in(tmp_path / "a folder" / "in another") == [{"body": body, **ends} for body in "abc"]


def test_many_failed_rows_are_written_as_they_come(tmp_path: Path) -> None:
    file = prepared(tmp_path).file()
    for number in range(2500):
        file.add(batch(str(number)), [LOST])
    (unfinished,) = tmp_path.glob("_*")
    assert unfinished.stat().st_size > 0
    file.finish()
    assert len(rows_in(tmp_path)) == 2500
    assert not list(tmp_path.glob("_*"))


def test_discard_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    before = folder.file()
    before.add(batch("kept"), [LOST])
    before.finish()
    file = folder.file()
    file.add(batch(*map(str, range(1000))), [LOST] * 1000)
    file.discard()
    folder.file().discard()
    assert [row["body"] for row in rows_in(tmp_path)] == ["kept"]
    assert not list(tmp_path.glob("_*"))


def test_two_writes_keep_their_failed_rows_apart(tmp_path: Path) -> None:
    for body in "ab":
        file = prepared(tmp_path).file()
        file.add(batch(body), [LOST])
        file.finish()
    assert sorted(row["body"] for row in rows_in(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_failures_path_accepts_local_folders_in_any_form(tmp_path: Path, form: str) -> None:
    prepared(form.format(tmp_path / "folder")).file().finish()
    (file,) = (tmp_path / "folder").iterdir()
    assert file.match("no-rows-*.parquet")


def test_relative_failures_path_is_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = prepared("failures")
    monkeypatch.chdir("/")
    folder.file().finish()
    assert list((tmp_path / "failures").glob("no-rows-*.parquet"))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("dbfs:/failures", "does not know dbfs: - give the folder as the cluster's nodes see it, /Volumes/"),
        ("nothing://here/it/is", "failuresPath cannot be written: Unrecognized filesystem type"),
        ("/proc/no/such/folder", "failuresPath cannot be written: .*Cannot create directory"),
    ],
)
def test_failures_path_that_cannot_be_written_is_refused(path: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        prepared(path)


@pytest.mark.parametrize("is_used", [False, True])
def test_worker_without_the_failures_folder_raises(tmp_path: Path, is_used: bool) -> None:
    folder = prepared(tmp_path)
    for file in tmp_path.iterdir():  # as on another machine
        file.unlink()
    if is_used:  # that machine has a folder of an earlier write
        prepared(tmp_path)
    with pytest.raises(ConfigurationError, match="not the same folder on the driver and on the workers"):
        folder.file()


def test_key_in_a_failures_path_is_a_secret() -> None:
    assert FailuresFolder("s3://user:secret@bucket/folder").secrets == ("secret",)
    assert FailuresFolder("/folder").secrets == ()


def test_files_of_tasks_that_a_repetition_lacks_are_removed(tmp_path: Path) -> None:
    stream = FailuresFolder(str(tmp_path), is_stream=True)
    for name in ("failed-query-7-00001", "failed-query-7-00002", "failed-query-7-00003", "failed-query-17-00003"):
        (tmp_path / f"{name}.parquet").touch()
    FailuresFolder(str(tmp_path)).remove_rest(["query-7"], 0)
    assert len(list(tmp_path.iterdir())) == 4, "other writes are never repeated"
    stream.remove_rest([None, "query-7"], 2)
    stream.remove_rest([], 0)
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["failed-query-17-00003", "failed-query-7-00001"]


def test_folder_that_cannot_be_listed_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FailuresFolder(str(tmp_path / "gone"), is_stream=True).remove_rest(["query-7"], 2)
    assert "may remain in failuresPath" in caplog.text
