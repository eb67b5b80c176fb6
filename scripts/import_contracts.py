"""The contract that import-linter lacks: modules that need the standard library only.

It is registered under ``contract_types`` in pyproject.toml.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph

__all__ = ["StandardLibraryOnly"]

_PERMITTED: Final = sys.stdlib_module_names


class StandardLibraryOnly(Contract):
    """The modules named, and all below them, import the standard library and each other only.

    Configuration options:
        - modules: the modules and packages that the contract holds.
    """

    modules = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every direct import; `verbose` is import-linter's and not needed here."""
        del verbose
        named = cast("list[str]", self.modules)
        held = set(named).union(*(graph.find_descendants(module) for module in named))
        strangers = [
            (importer, imported)
            for importer in sorted(held)
            for imported in sorted(graph.find_modules_directly_imported_by(importer) - held)
            if imported.partition(".")[0] not in _PERMITTED
        ]
        return ContractCheck(kept=not strangers, metadata={"strangers": strangers})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each import that does not belong."""
        for importer, imported in check.metadata["strangers"]:
            output.print_error(f"{importer} imports {imported}, which is not in the standard library.")
