"""Progress bars for work that takes longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

from sbnotebook.settlement.locking.settle import Progress

__all__ = ["bar"]

_SHOW_AFTER = 1.0


@contextmanager
def bar(what: str, total: int | None, *, shown: bool = True) -> Generator[Progress | None]:
    """A progress bar that appears only when the work takes longer than a second.

    Args:
        what: the words in front of it.
        total: how many messages there are, None when that is not known.
        shown: False for no bar at all.
    """
    # In a file a bar would only be many lines; a notebook's kernel draws one although it has no terminal.
    if not shown or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield None
        return
    from tqdm.auto import tqdm

    class Bar(tqdm):
        def __del__(self) -> None:
            # One that an interrupt left half made has nothing to close, and would complain in a later cell.
            with suppress(AttributeError):
                super().__del__()

    with Bar(total=total, desc=what, unit=" messages", delay=_SHOW_AFTER, leave=False) as line:

        def advance(count: int) -> None:
            line.update(count)

        yield advance
