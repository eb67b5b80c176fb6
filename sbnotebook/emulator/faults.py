"""Faults on demand: how a test or a benchmark makes the emulator behave badly."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Faults"]


@dataclass(slots=True)
class Faults:
    """What is wrong with the emulator right now; by default nothing.

    Attributes:
        accept_delay_ms: how long the confirmation of each sent message is held back. The delays of
            several messages run at the same time, as on a long line.
    """

    accept_delay_ms: int = 0
