"""The magics: ``%load_ext sbnotebook``.

Each magic parses its line, makes a plan, shows it, and carries it out; everything it does is done by
:mod:`sbnotebook.client`, so each is also a method there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.client.portal import warn_after_cells
from sbnotebook.magics.completion import Completer
from sbnotebook.magics.connection_magics import ConnectionMagics
from sbnotebook.magics.current import Current, SbMagics, say, show_results
from sbnotebook.magics.lock_magics import LockMagics
from sbnotebook.magics.overview_magics import OverviewMagics
from sbnotebook.magics.parsing import add_advice
from sbnotebook.magics.peek_magics import PeekMagics
from sbnotebook.magics.recovery_magics import RecoveryMagics
from sbnotebook.magics.selection_magics import SelectionMagics
from sbnotebook.magics.send_magics import SendMagics
from sbnotebook.magics.typed_secrets import keep_secrets_out

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension"]

_MAGICS: Final = (
    ConnectionMagics,
    PeekMagics,
    OverviewMagics,
    LockMagics,
    SelectionMagics,
    SendMagics,
    RecoveryMagics,
)


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register the magics, the formatters of results, and tab completion, once for each shell."""
    if ConnectionMagics.__name__ in ipython.magics_manager.registry:
        return  # %reload_ext must not drop the connection and the locks
    shell: Any = ipython
    settings = SbMagics(parent=shell)
    shell.configurables.append(settings)  # so that %config SbMagics shows and sets them
    current = Current(settings)
    ipython.register_magics(*(magics(ipython, current) for magics in _MAGICS))
    show_results(ipython, current)
    warn_after_cells(ipython)
    shell.Completer.custom_matchers.append(Completer(ipython, current).complete)
    keep_secrets_out(ipython)
    add_advice(ipython)
    # Errors and reports show failures. Python would print the SDK's log of them below the cell, too, as it does with
    # records without a handler; a handler that the user sets up still gets them.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    say("sbnotebook is loaded: %sb_connect connects, and %sb shows all magics.")
