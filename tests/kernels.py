"""Kernels for tests, reached over sockets in a folder.

A TCP port that is free when Jupyter chooses it may be taken when the kernel binds it, with tests in several processes.
``-p tests.kernels`` in pyproject.toml gives the kernels of nbmake such sockets, too.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import KernelManager
from nbclient.client import NotebookClient

if TYPE_CHECKING:
    import pytest
    from jupyter_client.blocking.client import BlockingKernelClient

__all__ = ["ran", "running_kernel"]

_START_TIMEOUT = _TIMEOUT = 60


def pytest_configure(config: pytest.Config) -> None:
    """Have nbclient, which nbmake runs notebooks with, reach its kernels over sockets."""
    folder = TemporaryDirectory(prefix="kernels-")
    config.add_cleanup(folder.cleanup)
    numbers = count()

    create = NotebookClient.create_kernel_manager

    def create_over_sockets(self: NotebookClient) -> KernelManager:
        manager = create(self)
        manager.transport, manager.ip = "ipc", f"{folder.name}/{next(numbers)}"
        return manager

    NotebookClient.create_kernel_manager = create_over_sockets


@contextmanager
def running_kernel(**options: object) -> Generator[tuple[KernelManager, BlockingKernelClient]]:
    """Start a kernel, and shut it down at the end.

    Args:
        options: for the process, as ``env`` and ``cwd``.
    """
    # A short path: that of a socket may have 107 bytes at most.
    with TemporaryDirectory(prefix="kernel-") as folder:
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/socket")
        manager.start_kernel(**options)
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=_START_TIMEOUT)
            yield manager, client
        finally:
            client.stop_channels()
            manager.shutdown_kernel()


def ran(client: Any, cell: str, answer: str | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a cell to its end, and return the reply, and all that it showed but for its own echo.

    Args:
        client: of the kernel; its types are incomplete.
        cell: its code.
        answer: to each prompt; without one the kernel cannot prompt.
    """
    shown: list[dict[str, Any]] = []

    def note(message: dict[str, Any]) -> None:
        if message["msg_type"] != "execute_input":
            shown.append(message["content"])

    def give(_: object) -> None:
        client.input(answer)

    options = {"allow_stdin": answer is not None, "stdin_hook": give, "output_hook": note}
    return client.execute_interactive(cell, timeout=_TIMEOUT, **options)["content"], shown
