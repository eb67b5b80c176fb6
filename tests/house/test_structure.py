"""The script that measures the structure of a checkout."""

from __future__ import annotations

from pathlib import Path

from scripts.structure import CALLS, measure_calls, measure_sizes

ROOT = Path(__file__).resolve().parents[2]

# Frames from %sb_peek, %sb_send, %sb_complete and %sb_resubmit to the SDK, with those where the kernel waits.
# Only ever lower these.
MOST_FRAMES = (11, 12, 12, 12)


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


def test_structure_measures_live_frames() -> None:
    measured = measure_calls(ROOT)
    assert [name.partition(":")[0] for name in measured] == [*CALLS]
    frames = [int(value.partition(" ")[0]) for value in measured.values()]
    assert all(0 < count <= most for count, most in zip(frames, MOST_FRAMES, strict=True)), measured
