"""Views of our own, and what takes their place in front ends that cannot draw them."""

from __future__ import annotations

import os
from typing import Any, Final

import anywidget
import ipywidgets

from sbnotebook.widgets.background import Patience

__all__ = ["Rich", "RichOrPlain"]

_PLAIN_AFTER: Final = 15.0
"""Seconds of an idle kernel, in which nothing is seen where the front end has no views of ours."""


class Rich(anywidget.AnyWidget):
    """A view of our own, whose script sends a message when a browser has loaded it."""

    is_ready = False
    """True once a browser has loaded it."""

    def open(self) -> None:
        """Open the comm to the browser, which may answer on another thread before the constructor ends."""
        self.on_msg(self._note)
        super().open()

    def _note(self, _widget: object, _content: object, _buffers: object) -> None:
        self.is_ready = True


class RichOrPlain(ipywidgets.VBox):
    """Shows a view of our own, or a plain widget.

    The plain one is shown where the browser does not say that it has loaded the other, although the kernel could have
    heard it, and where the environment has ``SBNOTEBOOK_WIDGETS=plain``. If the browser answers later, the other
    returns.

    Args:
        rich: the view.
        plain: the widget in its place.
        options: of the box.
    """

    def __init__(self, rich: Rich, plain: ipywidgets.Widget, **options: Any) -> None:
        self._rich, self._plain = rich, plain
        super().__init__(**options)
        self._patience: Patience | None = None
        self._is_always_plain = os.environ.get("SBNOTEBOOK_WIDGETS") == "plain"
        self.use_plain(self._is_always_plain)
        if not self._is_always_plain:
            self._patience = Patience(_PLAIN_AFTER, lambda: self.use_plain(not rich.is_ready))
            rich.on_msg(self._heard)
            if rich.is_ready:  # the browser answered on another thread before this
                self._heard(rich, None, None)

    def use_plain(self, plain: bool) -> None:
        """Show the plain widget, or the view."""
        self.children = (self._plain if plain or self._is_always_plain else self._rich,)

    def _heard(self, _widget: object, _content: object, _buffers: object) -> None:
        """Show the view, because the browser has loaded it."""
        if self._patience is not None:
            self._patience.stop()
        is_new = self.children != (self._rich,)
        self.use_plain(False)
        if not is_new:  # a page that was being loaded may have missed the change
            self.send_state("children")

    def close(self) -> None:
        """Take it from the screen; the plain widget stays open."""
        if self._patience is not None:
            self._patience.stop()
        self._rich.close()
        super().close()
