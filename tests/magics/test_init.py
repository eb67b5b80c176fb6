from __future__ import annotations

import subprocess
import sys

from tests.magics.conftest import Kernel, Shell


def test_loading_twice_keeps_the_connection(shell: Shell) -> None:
    ran = shell.run("%reload_ext sbnotebook\n%sb_entities")
    assert ran.err == ""
    assert isinstance(ran.value, list)


def test_two_shells_have_each_their_own_connection(shell: Shell, unconnected: Shell) -> None:
    assert unconnected.error("%sb_entities") == "There is no connection: run %sb_connect first."
    assert shell.run("%sb_entities").err == ""


def test_what_the_sdk_logs_is_in_no_cell(kernel: Kernel) -> None:
    assert "control" in kernel.run("import logging; logging.getLogger('other').error('control')").text
    assert kernel.run("logging.getLogger('azure.servicebus').error('noise')").text == ""


def test_the_magics_load_without_pyspark_and_plotly() -> None:
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell; InteractiveShell()"
        ".run_line_magic('load_ext', 'sbnotebook'); print({'pyspark', 'plotly'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
