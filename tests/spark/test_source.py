from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def events(spark: SparkSession, event_log: Path) -> str:
    spark.range(1).count()  # what happened before is written when a later job has ended
    return "".join(path.read_text(errors="replace") for path in event_log.rglob("*") if path.is_file())


def test_spark_finds_the_source_and_its_env_target(spark: SparkSession, queue: str) -> None:
    fresh = spark.newSession()  # where nothing was registered by hand
    reader = fresh.read.format("servicebus").options(entity=queue, target="env:SBNOTEBOOK_TESTS_TARGET")
    assert reader.load().count() == 0


def test_looking_for_another_source_is_not_slowed_down() -> None:
    code = """
import sys, pyspark.sql.datasource
before = set(sys.modules)
import pyspark_servicebus
print(pyspark_servicebus.DefaultSource.name(), *{name.partition(".")[0] for name in set(sys.modules) - before})
"""
    name, *loaded = run(code).split()
    assert name == "servicebus"
    assert not {"azure", "aiohttp", "anyio", "duckdb", "pandas", "pyarrow", "IPython"} & set(loaded)


def test_another_source_is_found_where_ours_cannot_be_loaded() -> None:
    hidden = "import sys; sys.modules['sbnotebook'] = None; import pyspark_servicebus"
    assert run(f"{hidden}; print(hasattr(pyspark_servicebus, 'DefaultSource'))") == "False"


def test_another_source_is_found_where_ours_is_broken() -> None:
    broken = """
import sys, types
class Broken(types.ModuleType):
    def __getattr__(self, name):
        raise ValueError(name)
sys.modules["sbnotebook.spark.source"] = Broken("sbnotebook.spark.source")
import pyspark_servicebus
print(hasattr(pyspark_servicebus, "DefaultSource"))
"""
    assert run(broken) == "False"


def test_too_old_spark_is_refused_with_a_sentence() -> None:
    code = """
import pyspark.sql.streaming.datasource as datasource
del datasource.SupportsTriggerAvailableNow
from sbnotebook.spark.schema import message_schema
from sbnotebook.spark.source import ServiceBusDataSource
source = ServiceBusDataSource({"entity": "orders", "target": "emulator"})
try:
    source.streamReader(schema=message_schema())
except Exception as error:
    print(error)
"""
    assert run(code).endswith("is too old for this: it needs Spark 4.2 or newer.")


def test_sql_hides_a_signature_by_the_option_name(spark: SparkSession, event_log: Path) -> None:
    for name, signature in (("connectionString", "c2hvd24"), ("secret.connectionString", "aGlkZGVu")):
        text = f"Endpoint=sb://n/;SharedAccessSignature=SharedAccessSignature sr=x&sig={signature}&se=1"
        options = f"OPTIONS (entity 'orders', {name} '{text}')"
        with pytest.raises(AnalysisException, match="There is no host n:"):
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW in_sql USING servicebus {options}")
    logged = events(spark, event_log)
    assert "c2hvd24" in logged, "Spark shows the value of the other name, and it would be seen here"
    assert "aGlkZGVu" not in logged
