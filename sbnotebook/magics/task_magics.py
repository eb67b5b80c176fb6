"""``%sb``: the magics by task, and ``%sb VERB …``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, needs_local_scope, no_var_expand

from sbnotebook.analysis.shown import Shown, Table
from sbnotebook.magics.names import TASKS, about_name
from sbnotebook.magics.plan_magics import PlanMagics


class Overview(Shown):
    """All magics by task, with the first sentence of their help."""

    _one_line = False

    def __init__(self, magics: Mapping[str, Any]) -> None:
        self._rows = [
            (task if verb is verbs[0] else "", f"%sb_{verb}", magics[f"sb_{verb}"].summary)
            for task, verbs in TASKS.items()
            for verb in verbs
        ]

    def _table(self, most: int) -> Table:  # noqa: ARG002 (all rows)
        caption = "%sb VERB … is the same as %sb_VERB …, and %sb_VERB? shows its help."
        return ("task", "magic", "what it does"), self._rows, caption


class TaskMagics(PlanMagics):
    """The magic that names the others."""

    @line_cell_magic
    @no_var_expand
    @needs_local_scope
    def sb(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> object:
        """Show the magics by task; with a verb, run the magic of this name.

        Example::

            %sb
            %sb peek orders/$dlq
        """
        shell: Any = self.shell
        verb, _, rest = line.strip().partition(" ")
        if not verb and not cell:
            return Overview(shell.magics_manager.magics["line"])
        name = f"sb_{verb.lower().replace('-', '_')}"
        magic = shell.find_line_magic(name) if cell is None else shell.find_cell_magic(name)
        if magic is None:
            raise UsageError(about_name(f"sb {verb}"))
        return magic(rest, cell, local_ns)
