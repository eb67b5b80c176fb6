"""The budget for hostile input: how much sbnotebook spends on a message, on a table, and on what it peeks ahead.

A sender chooses the bytes of a message, so every limit on what sbnotebook does with them is here. sbnotebook shows a
message over the budget by its raw bytes, with a notice that says which limit it exceeds. Nothing is lost: the bytes
stay in ``body``.
"""

from __future__ import annotations

from typing import Final

# ------------------------------------------------------------ one message

UNPACKED_BYTES: Final = 1024 * 1024
"""Bytes to which a packed body is unpacked, for one message that you look at."""
UNPACKED_TIMES: Final = 16
"""A larger packed body is unpacked to this many times its size: JSON often shrinks as much, a bomb a thousand times."""
PARSED_CHARACTERS: Final = 2_000_000
"""Characters of a body that are parsed as JSON or XML, for a panel or an expression."""
DECODED_BYTES: Final = 1024 * 1024
"""Bytes of a body that a decoder reads; a larger one keeps its bytes."""
MATCHED_CHARACTERS: Final = 64 * 1024
"""Characters of a text that regular expressions examine, such as a dead-letter description."""

# ------------------------------------------------------------ all messages of a table

UNPACKED_BYTES_OF_TABLE: Final = 64 * 1024 * 1024
"""Bytes that all packed bodies of a table may take together beyond ``UNPACKED_TIMES`` their size, and the most that one
body takes."""
CAUSE_SECONDS_OF_TABLE: Final = 60.0
"""Seconds of processor time for the causes of all messages of a table."""
DECODING_SECONDS_OF_TABLE: Final = 60.0
"""Seconds of processor time for decoding all bodies of a table, or of a batch in Spark."""


# ------------------------------------------------------------ all messages that are on their way

BYTES_AHEAD: Final = 16 * 1024 * 1024
"""Bytes of messages that are peeked at once, ahead of those that are read: so many of the largest pages of late. When
messages suddenly become large, it is exceeded by the pages in progress."""


class Allowance:
    """The rest of a budget that many messages share."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, wanted: int) -> None:
        self.left -= min(wanted, self.left)
