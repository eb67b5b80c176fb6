"""The emulator's store: everything that it has confirmed, in one SQLite file."""

from sbnotebook.emulator.store.opening import FILE_NAME, is_in_use, make_private
from sbnotebook.emulator.store.store import Store

__all__ = ["FILE_NAME", "Store", "is_in_use", "make_private"]
