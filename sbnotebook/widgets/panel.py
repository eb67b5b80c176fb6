"""What all panels have in common: in a terminal they are a text."""

from __future__ import annotations

import sys
from typing import Any

import ipywidgets as widgets

__all__ = ["Panel"]


class Panel(widgets.VBox):
    """A panel that a notebook shows as widgets and a terminal as text.

    Args:
        children: what it holds.
    """

    def to_text(self) -> str:
        """The panel as text, with what it has to wait for; by default its ``repr``, which does not wait."""
        return repr(self)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any] | None:
        # Where there is a kernel, there may be a browser, and the text stands for the panel in a saved notebook only.
        # ipywidgets would cut it at 110 characters.
        bundle: Any = super()._repr_mimebundle_(**kwargs)
        return bundle if "ipykernel" in sys.modules else bundle | {"text/plain": self.to_text()}
