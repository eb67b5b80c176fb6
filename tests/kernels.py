"""Kernels for tests."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from jupyter_client.manager import KernelManager

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

__all__ = ["running_kernel"]

_START_TIMEOUT = 60


@contextmanager
def running_kernel(**options: object) -> Generator[tuple[KernelManager, BlockingKernelClient]]:
    """Start a kernel that is reached over sockets in a folder, and shut it down at the end.

    A TCP port that is free when Jupyter chooses it may be taken when the kernel binds it.

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
