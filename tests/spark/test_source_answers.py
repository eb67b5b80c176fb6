"""Every wrong option, column and mode gets a sentence that says what to do, from Spark itself."""

from __future__ import annotations

import atexit
import os
import re
from typing import TYPE_CHECKING, Any, Final

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from sbnotebook.emulator import running
from tests.answers import check_answers
from tests.chances import IS_THOROUGH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEP: Final = 1 if IS_THOROUGH or os.environ.get("SBNOTEBOOK_WRITE_ANSWERS") else 5
"""Spark starts a process for each input. test_options.py and others hold the sentences, too."""
_LAST_LINE: Final = re.compile(r"(?m)^(?:sbnotebook\.errors\.)?(\w*(?:Error|Exception): .*)$")


def test_spark_answers_wrong_input_in_a_sentence(spark: SparkSession) -> None:
    with running(queues=["orders", "payments"]) as emulator:
        target: dict[str, Any] = {"connectionString": emulator.connection_string}

        def read(**options: Any) -> Any:
            return spark.read.format("servicebus").options(**{**target, **options})

        def stream(**options: Any) -> Any:
            return spark.readStream.format("servicebus").options(**{**target, **options})

        def write(frame: Any, **options: Any) -> Any:
            return frame.write.format("servicebus").options(**{**target, **options})

        names: dict[str, Any] = {"spark": spark, "read": read, "stream": stream, "write": write}
        names["frame"] = spark.createDataFrame([("m1", "text")], "message_id string, body_text string")

        def answered(line: str) -> str:
            try:
                return repr(eval(line, dict(names)))  # noqa: S307 (a line of our own file)
            except Exception as error:  # noqa: BLE001 (Spark wraps errors in many classes)
                return _sentence(error)

        check_answers("spark.txt", answered, step=_STEP)
        assert _shown_in_a_notebook(names, 'write(frame, entity="orders").save()').endswith(
            'sbnotebook only adds messages: df.write.format("servicebus").mode("append").\n'
        )


def _shown_in_a_notebook(names: dict[str, Any], cell: str) -> str:
    shell: Any = InteractiveShell(user_ns=names, config=Config(HistoryManager={"hist_file": ":memory:"}))
    shell.run_line_magic("load_ext", "sbnotebook")
    captured: Any
    with capture_output() as captured:
        shell.run_cell(cell)
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()
    return captured.stdout + captured.stderr


def _sentence(error: Exception) -> str:
    """Return the sentence in an error of Spark, which is the last line of a stack of Python that Spark shows."""
    text = str(error)
    lines = _LAST_LINE.findall(text)
    return lines[-1] if lines else f"{type(error).__name__}: {text}"
