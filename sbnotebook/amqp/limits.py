"""The limits of the codec: a sender chooses the bytes. `model.budget` has the other limits."""

from __future__ import annotations

from typing import Final

LEVELS: Final = 64
"""Levels that AMQP values and JSON may be nested, as in Microsoft's clients (``_MAX_NESTING_DEPTH`` of
azure-servicebus for Python, and the default of System.Text.Json)."""
ITEMS: Final = 65_536
"""Items of all lists, maps and arrays of one AMQP value together. Microsoft's clients allow as many in each
(``MAX_AMQPVALUE_ITEM_COUNT`` of azure-uamqp-c)."""
UNUSUAL_KEYS: Final = 1_000
"""Keys of an AMQP map that are neither texts nor bytes, such as numbers and ids. Of several maps, the squares count."""
