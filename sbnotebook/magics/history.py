"""Keeps the keys of connection strings out of IPython's history.

A cell is in the history before it runs, so it is cleaned on the way there: ``In``, ``_i``, ``%history`` and the
history file never have the key, whatever the cell was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbnotebook.settlement.connecting.connection import scrub

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["keep_secrets_out"]


def keep_secrets_out(shell: InteractiveShell) -> None:
    """Have a shell remember cells without the keys in them.

    Args:
        shell: one whose history has not been changed by this function yet.
    """
    manager: Any = shell.history_manager
    if manager is None:
        return
    store = manager.store_inputs

    def store_inputs(line_num: int, source: str, source_raw: str | None = None) -> None:
        store(line_num, scrub(source), None if source_raw is None else scrub(source_raw))

    manager.store_inputs = store_inputs
