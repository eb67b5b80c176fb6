"""Objects that Spark sends to the Python of its workers, where sbnotebook may not be installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Shipped:
    """An object whose arrival on a worker without sbnotebook raises one sentence instead of a stack of Spark's.

    Spark pickles functions that no module has by their value. Such a function unpickles the object, so it runs also
    where sbnotebook cannot be imported. Source: ``pyspark.cloudpickle``.
    """

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        """Return how to make the object again."""
        from pyspark import cloudpickle

        as_spark_does: Any = cloudpickle  # the object may hold functions that no module has
        return _unpacking(), (as_spark_does.dumps((type(self), self.__dict__)),)


def _unpacking() -> Callable[[bytes], Any]:
    # It travels by its value, so it uses no name of this module.
    def unpacked(content: bytes) -> Any:
        import pickle
        import sys

        try:
            kind, state = pickle.loads(content)  # noqa: S301 (Spark's own channel)
        except ModuleNotFoundError as error:
            problem = (
                f"The Python of this Spark worker, {sys.executable}, has no package {error.name!r}: install sbnotebook "
                "on every node, or ship it with the job, as the page 'Run on a cluster' of its documentation says."
            )
        else:
            made = object.__new__(kind)
            made.__dict__.update(state)
            return made
        raise RuntimeError(problem)

    return unpacked
