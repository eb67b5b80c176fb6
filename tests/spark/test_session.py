from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkConf

import sbnotebook
from sbnotebook.errors import ConfigurationError
from sbnotebook.spark import register, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    environ = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environ)


def test_the_package_works_from_a_zip(tmp_path: Path) -> None:
    package = Path(sbnotebook.__file__).parent
    shutil.make_archive(str(tmp_path / "kit"), "zip", package.parent, package.name)
    code = "import sys; sys.path.insert(0, 'kit.zip'); import sbnotebook.spark.source; print(sbnotebook.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=environment, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(str(Path("kit.zip", "sbnotebook")))


def test_local_session_suits_notebooks(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.sparkContext.master == "local[*]"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable


def test_current_session_is_used_and_named(spark: SparkSession) -> None:
    said: list[str] = []
    assert session(said.append) is spark
    assert said == [f"Using the running Spark {spark.version} session."]


def test_workers_with_another_python_are_mentioned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python3"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    said: list[str] = []
    session(said.append)
    said_of_workers = (
        f" Its workers run {python}: where packages are missing there, set PYSPARK_PYTHON before Spark starts"
    )
    assert said_of_workers in said[0]


def test_register_refuses_a_python_that_the_driver_lacks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "./environment/bin/python")
    with pytest.raises(ConfigurationError, match=r"of the workers, \./environment/bin/python, and there is none here"):
        register(spark)


def test_register_includes_our_wheel_of_py_files(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = spark.sparkContext
    included: list[str] = []
    monkeypatch.setattr(context, "_python_includes", included)
    wheel = "sbnotebook-1.0-py3-none-any.whl"
    sent = f"file:/lib/other-1.0-py3-none-any.whl,file:/lib/{wheel},/lib/sbnotebook.zip"
    settings = SparkConf(loadDefaults=False).set("spark.submit.pyFiles", sent)
    monkeypatch.setattr(context, "getConf", lambda: settings)
    for _ in range(2):
        register(spark)
    assert included == [wheel]


def test_register_may_be_called_twice(spark: SparkSession) -> None:
    register(spark)
    register(spark)


@pytest.fixture
def old_java(tmp_path: Path) -> str:
    """A JAVA_HOME with a Java that knows less than Spark was compiled for."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'java.lang.UnsupportedClassVersionError: class file version 61.0' >&2\nexit 1\n")
    java.chmod(0o755)
    return str(tmp_path / "java")


@pytest.mark.parametrize(
    "java", ["old", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("", "nonexistent"))]
)
def test_session_without_a_recent_java_raises_a_sentence(java: str, old_java: str, tmp_path: Path) -> None:
    homes = {"": "", "nonexistent": str(tmp_path / "nowhere"), "old": old_java}
    # Without JAVA_HOME it is the java on the PATH, where there is only what Spark's own scripts need.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "env", "dirname", "ps", "sh", "rm", "mktemp"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    result = run("from sbnotebook.spark import session; session()", JAVA_HOME=homes[java], PATH=str(tools))
    assert result.returncode == 1
    assert result.stderr.rstrip().splitlines()[-1] == (
        "sbnotebook.errors.ConfigurationError: Spark could not start Java: install Java 17 or newer, or set JAVA_HOME "
        "to where it is; `sbnotebook doctor` says what there is."
    )


def test_session_with_databricks_connect_asks_for_its_session(tmp_path: Path) -> None:
    (tmp_path / "databricks" / "connect").mkdir(parents=True)
    (tmp_path / "databricks" / "connect" / "__init__.py").touch()
    result = run("from sbnotebook.spark import session; session()", PYTHONPATH=str(tmp_path))
    assert result.stderr.rstrip().endswith("spark = DatabricksSession.builder.getOrCreate().")


def test_spark_connect_session_is_the_notebooks_variable() -> None:
    code = """
from IPython.core.interactiveshell import InteractiveShell
from sbnotebook.spark.session import _active
shell = InteractiveShell.instance()
class Session:
    dataSource, is_stopped = None, False
spark = shell.user_ns["spark"] = Session()
assert _active() is spark
spark.is_stopped = True
assert _active() is None
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_session_without_spark_connect_packages_names_them() -> None:
    code = "import sys; sys.modules['grpc'] = None; from sbnotebook.spark import session; session()"
    result = run(code, SPARK_REMOTE="sc://localhost:1/;token=c2VjcmV0")
    assert result.stderr.rstrip().endswith("Spark Connect needs more packages: pip install 'pyspark[connect]'.")
    assert "c2VjcmV0" not in result.stderr


def test_import_without_pyspark_names_the_extra() -> None:
    result = run("import sys; sys.modules['pyspark'] = None; import sbnotebook.spark")
    assert "MissingExtraError" in result.stderr
    assert "run pip install '.[spark]' in a clone of sbnotebook" in result.stderr
