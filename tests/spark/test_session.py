from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from sbnotebook.spark import register, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    environ = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environ)


def test_a_local_session_suits_notebooks(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.sparkContext.master == "local[*]"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable


def test_the_active_session_is_taken_without_a_word(spark: SparkSession) -> None:
    said: list[str] = []
    spark.createDataFrame([(1,)], "n int")  # Spark calls that session active which was used last, in whatever test
    assert session(said.append) is spark
    assert not said


def test_registering_twice_does_no_harm(spark: SparkSession) -> None:
    register(spark)
    register(spark)


def test_without_java_it_says_so_in_a_sentence() -> None:
    result = run("from sbnotebook.spark import session; session()", JAVA_HOME="/nonexistent")
    assert result.returncode == 1
    assert result.stderr.rstrip().splitlines()[-1] == (
        "sbnotebook.errors.ConfigurationError: Spark could not start Java: install Java 17 or newer, or set JAVA_HOME "
        "to where it is; `sbnotebook doctor` says what there is."
    )


def test_without_pyspark_it_names_the_extra() -> None:
    result = run("import sys; sys.modules['pyspark'] = None; import sbnotebook.spark")
    assert "MissingExtraError" in result.stderr
    assert result.stderr.rstrip().endswith("pip install 'sbnotebook[spark]'.")
