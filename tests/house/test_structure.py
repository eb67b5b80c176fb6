"""The script that measures the structure of a checkout."""

from __future__ import annotations

from pathlib import Path

from scripts.structure import measure_sizes


def test_structure_measures_files_and_functions(tmp_path: Path) -> None:
    package = tmp_path / "sbnotebook"
    package.mkdir()
    (package / "short.py").write_text("x = 1\n")
    (package / "long.py").write_text('def f():\n    """Return\n\n    one.\n    """\n    return 1\n\n\ndef g(): ...\n')
    assert measure_sizes(tmp_path) == {
        "files": "2",
        "lines": "10",
        "lines of a file (median, 90th percentile)": "5, 8",
        "functions": "2",
        "lines of a function without its docstring (median, 90th percentile)": "1.5, 2",
    }
