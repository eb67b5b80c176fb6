"""The magics: ``%load_ext sbnotebook``.

Each magic parses its line, makes a plan, shows it, and carries it out; everything it does is done by
:mod:`sbnotebook.client`, so each is also a method there.
"""

# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbnotebook.client.portal import warn_after_cells
from sbnotebook.magics import connection_magics, peek_magics, plan_magics, settle_magics
from sbnotebook.magics.arguments import add_advice
from sbnotebook.magics.completion import Completer
from sbnotebook.magics.connection_magics import keep_secrets_out
from sbnotebook.magics.current import Current, SbMagics, say, show_results
from sbnotebook.magics.peek_magics import register_overview
from sbnotebook.magics.plan_magics import register_commands

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension"]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register the magics, the formatters of results, and tab completion, once for each shell."""
    if ipython.find_line_magic("sb") is not None:
        return  # %reload_ext must not drop the connection and the locks
    shell: Any = ipython
    settings = SbMagics(parent=shell)
    shell.configurables.append(settings)  # so that %config SbMagics shows and sets them
    current = Current(settings, shell)
    register_overview(shell)
    register_commands(current)
    show_results(ipython, current)
    warn_after_cells(ipython)
    shell.Completer.custom_matchers.append(Completer(ipython, current).complete)
    keep_secrets_out(ipython)
    add_advice(ipython)
    say("sbnotebook is loaded: %sb_connect connects, and %sb shows all magics.")
