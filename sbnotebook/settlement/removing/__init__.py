"""Messages that are removed: archived before, and sent back when that was wrong."""
