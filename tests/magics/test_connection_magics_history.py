from __future__ import annotations

from tests.magics.conftest import Kernel

SECRET = "a2V5T2ZTb21lYm9keQ"
LINE = f"%sb_connect Endpoint=sb://my.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey={SECRET}="
LOOK = """
import sqlite3
manager = get_ipython().history_manager
manager.writeout_cache()
rows = sqlite3.connect(manager.hist_file).execute("SELECT source, source_raw FROM history").fetchall()
print(len(rows) > 0, repr(rows), repr(In), _i, _ii, _iii)
"""


def test_typed_key_is_in_no_history(kernel: Kernel) -> None:
    refused = kernel.run(LINE)
    assert "would be kept in the notebook" in refused.text
    assert SECRET not in str(refused.outputs).replace(LINE, ""), "the front end's own echo of the cell apart"
    found = kernel.run(LOOK).text
    assert found.startswith("True")
    assert "SharedAccessKey=***" in found, "the cell itself is in the history"
    assert SECRET not in found


def test_cell_that_does_not_run_is_cleaned_too(kernel: Kernel) -> None:
    kernel.run(f"this is no Python\n{LINE}")
    assert SECRET not in kernel.run(LOOK).text


def test_other_cells_are_kept_as_they_are(kernel: Kernel) -> None:
    kernel.run("kept = 'as it is; {} = $x'")
    assert "kept = 'as it is; {} = $x'" in kernel.run("print(In[-2])").text
