"""The proof that an emulator is the one whose state a user has read.

A port says nothing about the process behind it: once the emulator has ended, another user of the machine can listen on
it, and the process ID is not a secret. So each emulator makes up a secret when it starts, and writes it into a file
that only its owner can read. A program that has read the file sends a challenge, and believes only an answer that needs
the secret.
"""

from __future__ import annotations

import hmac
import os
import sys
from typing import Final

PROOF: Final = "Proof"
"""The header with the proof of a lease."""
_SUBJECT: Final = "sbnotebook emulator"


def prove(secret: str, port: int, challenge: str) -> str:
    return hmac.digest(secret.encode(), f"{_SUBJECT}\n{port}\n{challenge}".encode(), "sha256").hex()


def prove_lease(secret: str) -> str:
    """Return what a program sends with a lease, to show that it has read the secret.

    No challenge has it as its answer.
    """
    return hmac.digest(secret.encode(), b"sbnotebook lease", "sha256").hex()


def belongs_to_user(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to the user of this process or to an administrator.

    On Windows, files have no such number. There, other users cannot open files below a user's profile.
    """
    return sys.platform == "win32" or status.st_uid in (0, os.getuid())
