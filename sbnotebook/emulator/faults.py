"""Faults on demand: how a test or a benchmark makes the emulator behave badly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MAX_DELAY_MS", "Faults"]

MAX_DELAY_MS: Final = 600_000
"""The longest delay that can be asked for over HTTP."""


@dataclass(slots=True)
class Faults:
    """What is wrong with the emulator right now; by default nothing.

    Attributes:
        accept_delay_ms: how long the confirmation of each sent message is held back. The delays of
            several messages run at the same time, as on a long line.
    """

    accept_delay_ms: int = 0
