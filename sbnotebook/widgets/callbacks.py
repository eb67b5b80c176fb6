"""Functions that are called when something happens in a widget."""

from __future__ import annotations

from collections.abc import Callable

from sbnotebook.widgets import background

__all__ = ["Callbacks"]


class Callbacks:
    """Functions to call, each until it is taken away again. One that fails keeps no other from being called.

    Args:
        failed: is given a sentence that says what went wrong in one of them.

    Example:
        >>> callbacks = Callbacks(failed=print)
        >>> end = callbacks.add(lambda name: print("hello", name))
        >>> callbacks("orders")
        hello orders
        >>> end()
        >>> callbacks("orders")
    """

    def __init__(self, failed: Callable[[str], object]) -> None:
        self._failed = failed
        self._functions: list[Callable[..., object]] = []

    def add(self, function: Callable[..., object]) -> Callable[[], None]:
        """Call a function from now on, until the function that is returned is called."""
        self._functions.append(function)

        def end() -> None:
            if function in self._functions:
                self._functions.remove(function)

        return end

    def __call__(self, *details: object) -> None:
        """Call all."""
        for function in tuple(self._functions):
            try:
                function(*details)
            except Exception as error:  # noqa: BLE001 (nobody else would see it)
                self._failed(background.sentence(error))
