"""What a piece of code costs: in steps that are the same on every machine, and in memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs, each turn of a loop counted."""
    count = 0

    def trace(_frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def megabytes(of: str) -> float:
    """Return what Linux says of the memory of this process, such as ``VmRSS``, that of now, or ``VmHWM``, the most."""
    found = re.search(rf"{of}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) / 1024


def forget_the_most() -> float:
    """Let ``VmHWM`` begin with the memory of now, which is returned."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return megabytes("VmRSS")
