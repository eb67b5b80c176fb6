"""``%sb_connect`` and ``%sb_entities``."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import StdinNotImplementedError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument

from sbnotebook.client import Namespace, tables
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import INTO, Given, command
from sbnotebook.magics.display import say
from sbnotebook.settlement.administration import EntityCounts

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.current import Current

__all__ = ["Connecting", "Entities"]

_COLUMNS: Final = ("entity", "kind", "active", "scheduled", "dead_letter", "transfer_dead_letter", "size_bytes")


class Entities(list[EntityCounts]):
    """Entities with their counts, shown as a table."""

    def _rows(self) -> list[list[Any]]:
        return [[counts.address, *(getattr(counts, name) for name in _COLUMNS[1:])] for counts in self]

    def __repr__(self) -> str:
        return tables.text_table(_COLUMNS, self._rows())

    def _repr_html_(self) -> str:
        return tables.html_table(_COLUMNS, self._rows())


@magics_class
class Connecting(Magics):
    """Magics that say which namespace is meant, and what is there."""

    def __init__(self, shell: InteractiveShell, current: Current) -> None:
        super().__init__(shell)
        self._current = current

    @line_magic
    @command(
        argument(
            "target",
            nargs="?",
            metavar="TARGET",
            help="emulator, NAMESPACE.servicebus.windows.net, env:VARIABLE or secret:SCOPE/KEY (Databricks)",
        ),
        argument("-p", "--prompt", action="store_true", help="ask for a connection string, without showing it"),
        INTO,
    )
    def sb_connect(self, given: Given) -> Namespace | None:
        """Connect to a namespace, in place of the one before, and say to which.

        Without a target it is the one in the environment variable SBNOTEBOOK_CONNECTION or
        SERVICEBUS_CONNECTION_STRING, and otherwise the emulator on this machine, which is started when it is needed.
        A connection string has its place in an environment variable, a secret, or behind --prompt: typed here, the
        notebook would keep it.

        Example::

            %sb_connect emulator
            %sb_connect myspace.servicebus.windows.net --into namespace
        """
        if given.prompt and given.target:
            raise ConfigurationError("Give a target or --prompt, not both.")
        namespace = self._current.connect(_prompted() if given.prompt else given.target)
        what = f"{namespace.host}, an emulator" if namespace.is_emulator else namespace.host
        say(f"Connected to {what}. Found by: {namespace.found_by}.")
        return namespace if given.into else None

    @line_magic
    @command(INTO)
    def sb_entities(self, _given: Given) -> Entities:
        """Show all entities of the namespace with their counts.

        The counts take the service a management operation for each entity: do not ask often.

        Example::

            %sb_entities
        """
        return Entities(self._current.namespace.entities())


def _prompted() -> str:
    try:
        return getpass.getpass("Connection string: ")
    except (EOFError, StdinNotImplementedError):
        raise ConfigurationError("Nobody can be asked here: use env:VARIABLE or secret:SCOPE/KEY.") from None
