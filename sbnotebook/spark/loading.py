"""What ``%sb_spark`` does, as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sbnotebook.spark.session import is_elsewhere, register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sbnotebook.client import Namespace

__all__ = ["load"]


def load(
    namespace: Namespace,
    entity: str,
    *,
    spark: SparkSession | None = None,
    say: Callable[[str], None] = print,
    **options: object,
) -> DataFrame:
    """The messages of an entity as a Spark frame, read by peeking: nothing is locked or removed.

    The frame peeks again each time it is used, unless it is cached. The connection string is in no option, and is
    shown nowhere, with Spark Connect, too. Where there is none, the workers sign in with their own
    DefaultAzureCredential.

    Args:
        namespace: where the entity is.
        entity: ``orders``, ``orders/$dlq``, ``events/subscriptions/audit``.
        spark: the session; None for the one that there is, or a new one on this machine.
        say: told in a sentence which session it is, and what stands in the way.
        options: those of :mod:`sbnotebook.spark.options` to read, such as ``partitions=4``; None for one not given.

    Raises:
        ConfigurationError: an option is wrong, the entity's address is, or there is no Spark.

    Example:
        >>> letters = load(namespace, "orders/$dlq", partitions=4)  # doctest: +SKIP
        Started a local Spark 4.3.0 on 8 cores; spark.stop() ends it.
    """
    from sbnotebook.spark.options import ReadOptions

    given = {name: str(value) for name, value in options.items() if value is not None}
    given |= {"entity": entity, "fullyQualifiedNamespace": namespace.host}
    ReadOptions.parse(given)  # here, in a sentence, and before Spark starts
    spark = spark or session(say)
    register(spark, *filter(None, [namespace.connection_string]))
    if namespace.is_emulator and is_elsewhere(spark):
        say("This emulator is on this machine only: Spark's workers on other machines do not reach it.")
    return spark.read.format("servicebus").options(**given).load()
