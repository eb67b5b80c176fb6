"""Durations as text, in the style in which users write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

_UNITS: Final = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000))  # Units and their microseconds
_SECOND: Final = 1_000_000


def duration_text(duration: timedelta | float, *, rounded: bool = False) -> str:
    """Return a duration as you would write it for an option, such as ``1m30s``."""
    given = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    sign, left = ("-", -given) if given < timedelta(0) else ("", given)
    rest = left // timedelta(microseconds=1)
    if rounded:
        # Seconds below two minutes, and minutes below a day.
        step = _SECOND if rest < 120 * _SECOND else _UNITS[2][1] if rest < _UNITS[0][1] else _UNITS[1][1]
        rest = (rest + step // 2) // step * step
    parts: list[str] = []
    for name, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{name}")
    if rest or not parts:
        parts.append(f"{rest / _SECOND:.6f}".rstrip("0").rstrip(".") + "s")
    return sign + "".join(parts)
