"""A Spark session for a notebook or a script."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sbnotebook.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]

_LOG: Final = Path(__file__).with_name("log4j2.properties").as_uri()
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG}",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(say: Callable[[str], None] = print) -> SparkSession:
    """The Spark session that is active, or else a local one that is started for this process.

    A local session runs on all cores of this machine, listens on no outside address, and runs its Python workers with
    this Python (PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are set to it), in UTC.

    Args:
        say: told in a sentence that a session was started.

    Raises:
        ConfigurationError: there is no Java that Spark can start.

    Example:
        >>> spark = session()  # doctest: +SKIP
        Started a local Spark 4.3.0 on 8 cores; spark.stop() ends it.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = _start()
        say(f"Started a local Spark {spark.version} on {os.cpu_count()} cores; spark.stop() ends it.")
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make ``format("servicebus")`` known to a session; needed only where Spark does not find it by itself."""
    from sbnotebook.spark.source import ServiceBusDataSource

    spark.dataSource.register(ServiceBusDataSource)


def _start() -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    # Java's environment is fixed when it starts, and its workers get theirs from it.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[*]").appName("sbnotebook")
    for name, value in _LOCAL.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise ConfigurationError(
            "Spark could not start Java: install Java 17 or newer, or set JAVA_HOME to where it is; "
            "`sbnotebook doctor` says what there is."
        ) from None
