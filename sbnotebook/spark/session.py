"""A Spark session for a notebook or a script, and entities loaded into its frames."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sbnotebook.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sbnotebook.client import Namespace
    from sbnotebook.client.targets import NamespaceTarget

_LOG: Final = Path(__file__).absolute().with_name("log4j2.properties").as_uri()
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG}",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_REGISTERED: Final[dict[str, NamespaceTarget]] = {}
"""Connection strings by the lower case of their hosts."""
_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_CONNECT: Final = ("grpc", "grpc_status", "zstandard")
_WHEEL: Final = re.compile(r"sbnotebook-[^/]*\.whl")
_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1", "[::1]")


def session(say: Callable[[str], None] = print) -> SparkSession:
    """Return the current Spark session, or else start a local one for this process.

    The current session is the active one, classic or of Spark Connect, or else the notebook's variable ``spark``, as in
    Databricks. Where the environment variable SPARK_REMOTE names a Spark Connect server, the session is made there.

    A local session runs on all cores of this machine, listens on no outside address, and runs its Python workers with
    this Python (PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are set to it), in UTC.

    Example:
        >>> spark = session()  # doctest: +SKIP
        Started a local Spark 4.3.0 on 8 cores; spark.stop() ends it.
    """
    spark = _active()
    if spark is not None:
        say(f"Using the running Spark {spark.version} session.{_other_python(spark)}")
    elif os.environ.get("SPARK_REMOTE") or os.environ.get("SPARK_API_MODE") == "connect":
        spark = _connect()
        say(f"Connected to Spark {spark.version} by Spark Connect; spark.stop() ends the session.")
    else:
        spark = _start()
        say(f"Started a local Spark {spark.version} on {os.cpu_count()} cores; spark.stop() ends it.")
    register(spark)
    return spark


def is_elsewhere(spark: SparkSession) -> bool:
    """Return whether the workers of a session are known to run on other machines than this one.

    Example:
        >>> is_elsewhere(session())  # doctest: +SKIP
        False
    """
    from pyspark.sql.session import SparkSession

    either: Any = spark  # that of Spark Connect is another class
    if isinstance(either, SparkSession):
        return not str(either.sparkContext.master).startswith("local")
    return either.client.host not in _THIS_MACHINE


def register(spark: SparkSession, *connection_strings: str, allow_remote: bool = False) -> None:
    """Make ``format("servicebus")`` known to a session, where Spark does not find it by itself, and give it secrets.

    Spark Connect, which Databricks' shared and serverless compute use, shows every option in its UI and event log, the
    connection string, too. A connection string that you register is shown nowhere. The option
    ``fullyQualifiedNamespace`` finds it by its host, in all sessions of this process. Decoders that have a name and a
    schema now, by :func:`sbnotebook.decoder`, are known to the option ``decode``.

    Example:
        >>> register(spark, "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=…")  # doctest: +SKIP
        >>> orders = spark.read.format("servicebus").options(  # doctest: +SKIP
        ...     entity="orders", fullyQualifiedNamespace="shop.servicebus.windows.net").load()
    """
    from sbnotebook.spark.source import ServiceBusDataSource

    if connection_strings:
        from sbnotebook.client.targets import NamespaceTarget
        from sbnotebook.settlement import Connection

        targets = [NamespaceTarget(text) for text in connection_strings]
        connection_strings = ()  # a traceback would show it
        _REGISTERED.update({Connection(each.text, allow_remote=allow_remote).host: each for each in targets})

    from sbnotebook.analysis.decoding import registered_decoders

    class Registered(ServiceBusDataSource):
        # A class of a function travels by its value, and the bytes of it are shown nowhere.
        connection_strings: ClassVar = dict(_REGISTERED)
        decoders: ClassVar = {name: each for name, each in registered_decoders().items() if each.schema is not None}

    _check_cluster(spark)
    spark.dataSource.register(Registered if _REGISTERED or Registered.decoders else ServiceBusDataSource)


def _check_cluster(spark: SparkSession) -> None:
    """Refuse a Python that the driver cannot run, hand on our wheel, and watch for files on the workers' disks."""
    from pyspark.sql.session import SparkSession

    either: Any = spark
    if not isinstance(either, SparkSession):
        return
    python = str(either.sparkContext.pythonExec)
    if shutil.which(python) is None:
        raise ConfigurationError(
            f"Spark's driver plans with the Python of the workers, {python}, and there is none here: unpack or link it "
            "to that place in the driver's working directory before Spark starts."
        )
    from sbnotebook.spark.unshared_sinks import warn_of_unshared_sinks

    with suppress(Exception):  # a platform such as Databricks may forbid them, and reads work without
        _include_wheel(either.sparkContext)
        _quieten(either)
        warn_of_unshared_sinks(either)


def _quieten(spark: Any) -> None:
    """Keep Spark from warning whenever a class takes the place of the one that it found by itself."""
    logging = spark._jvm.org.apache.logging.log4j  # noqa: SLF001
    logging.core.config.Configurator.setLevel(_MANAGER, logging.Level.ERROR)


def _include_wheel(context: Any) -> None:
    """Let workers import from our wheel in ``--py-files``: Spark sends it to them, and leaves it out of their path.

    Source: ``PACKAGE_EXTENSIONS`` of pyspark's ``SparkContext``.
    """
    sent = [Path(each).name for each in context.getConf().get("spark.submit.pyFiles", "").split(",")]
    included: list[str] = context._python_includes  # noqa: SLF001
    included += [name for name in sent if _WHEEL.fullmatch(name) and name not in included]


def load(
    namespace: Namespace,
    entity: str,
    *,
    where: str | None = None,
    spark: SparkSession | None = None,
    say: Callable[[str], None] = print,
    **options: object,
) -> DataFrame:
    """Return the messages of an entity as a Spark frame, read by peeking: nothing is locked or removed.

    This is ``%sb_spark`` as a function. The frame peeks again each time it is used, unless you cache it. The connection
    string is in no option and is shown nowhere, not even by Spark Connect. Without a connection string, the workers
    sign in with their own DefaultAzureCredential. ``where`` is an expression of Spark SQL. Where it compares
    ``sequence_number`` or ``state`` with values, joined by AND, no other messages are read.

    Example:
        >>> letters = load(namespace, "orders/$dlq", partitions=4)  # doctest: +SKIP
        Started a local Spark 4.3.0 on 8 cores; spark.stop() ends it.
    """
    from sbnotebook.spark.browse_stream import narrowed
    from sbnotebook.spark.options import ReadOptions

    most = options.pop("maxMessages", None) if where is not None else None
    given = {name: str(value) for name, value in options.items() if value is not None}
    given |= {"entity": entity, "fullyQualifiedNamespace": namespace.host}
    if namespace.service_credential is not None:
        given["credential"] = namespace.service_credential
    read = ReadOptions.parse(given)  # here, in a sentence, and before Spark starts
    if where is not None:
        narrow = narrowed(where, read)
        given = {name: value for name, value in given.items() if name.lower() not in map(str.lower, narrow)} | narrow
    spark = spark or session(say)
    # It was allowed when the namespace was made.
    register(spark, *filter(None, [namespace.connection_string]), allow_remote=True)
    if namespace.is_emulator and is_elsewhere(spark):
        say("This emulator is on this machine only: Spark's workers on other machines do not reach it.")
    frame = spark.read.format("servicebus").options(**given).load()
    if where is None:
        return frame
    matching = _where(frame, where)
    return matching if most is None else matching.limit(int(str(most)))


def _where(frame: DataFrame, expression: str) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException

    try:
        return frame.where(expression)
    except (AnalysisException, ParseException) as error:
        said = str(error).partition("\n")[0]
        raise ConfigurationError(f"The expression {expression[:200]!r} cannot be used in Spark: {said}") from None


def _active() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError as error:
        if error.getCondition() != "NO_ACTIVE_OR_DEFAULT_SESSION":
            raise
    from sbnotebook.client.targets import notebook_variable  # not above: it loads the SDK

    # A session of Spark Connect is active only in the thread, and by the class, that made it.
    spark: Any = notebook_variable("spark")
    return spark if hasattr(spark, "dataSource") and not getattr(spark, "is_stopped", True) else None


def _other_python(spark: SparkSession) -> str:
    """Return a sentence where the workers on this machine run a Python that may lack our packages."""
    from pyspark.sql.session import SparkSession

    either: Any = spark
    if not isinstance(either, SparkSession) or is_elsewhere(spark):
        return ""
    python = shutil.which(either.sparkContext.pythonExec)
    if python is not None and Path(python).parent == Path(sys.executable).parent:
        return ""
    return f" Its workers run {python}: where packages are missing there, set PYSPARK_PYTHON before Spark starts."


def _connect() -> SparkSession:
    from pyspark.sql import SparkSession

    # Looked for here, because pyspark 4.3 ends the whole process where one is missing (pyspark.sql.connect.utils).
    if not all(find_spec(package) for package in _CONNECT):
        raise ConfigurationError("Spark Connect needs more packages: pip install 'pyspark[connect]'.")
    return SparkSession.builder.getOrCreate()


def _start() -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if find_spec("databricks") is not None and find_spec("databricks.connect") is not None:
        raise ConfigurationError(
            "Databricks Connect starts no Spark here: make the session first, "
            "spark = DatabricksSession.builder.getOrCreate()."
        )
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
