"""A sender that sends messages all the time, also while the emulator is dead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from tests.chances import chance
from tests.kills import Ledger

SIZES: Final = (0, 50, 200, 200, 1_000, 20_000)
"""Bytes of bodies."""
AT_ONCE: Final = 40
READ: Final = "read"
"""The place in the ledger where each message must be in the end whose sending was confirmed."""


@dataclass
class Supply:
    """Sends to a queue in a thread of its own.

    Args:
        connection_string: of the emulator.
        queue: where to.
        waiting: tells how many wait there.
        plenty: it sends when fewer than these wait.
        seed: of its random choices.
        sessions: how many sessions the messages are of; 0 for none.

    Attributes:
        ledger: the messages; of those whose sending has no answer, it says that they may be read or not.
    """

    connection_string: str
    queue: str
    waiting: Callable[[], int]
    plenty: int
    seed: str
    sessions: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._chance = chance(self.seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self.error: Exception | None = None
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and finish sends in progress.

        Raises:
            Exception: what it failed with.
        """
        self._stopped.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _send_all(self) -> None:
        try:
            with Namespace(Target(Connection(self.connection_string), "a test"), archive=False) as namespace:
                queue = namespace.entity(self.queue)
                while not self._stopped.wait(self._chance.uniform(0, 0.1)):
                    if self.waiting() >= self.plenty:
                        continue
                    messages = [self._new() for _ in range(self._chance.randint(1, AT_ONCE))]
                    for message in messages:
                        self.ledger.enter(message.message_id or "", message.body)
                    self.ledger.begin((message.message_id or "" for message in messages), READ)
                    report = queue.send(messages, show_progress=False)
                    self.ledger.confirm((outcome.message_id or "" for outcome in report if outcome.ok), READ)
        except Exception as error:  # noqa: BLE001 - stop raises it
            self.error = error

    def _new(self) -> Message:
        name = f"{self._chance.getrandbits(64):016x}"
        session = f"s{self._chance.randrange(self.sessions)}" if self.sessions else None
        body = name.encode() + self._chance.randbytes(self._chance.choice(SIZES))
        return Message(body=body, message_id=name, session_id=session)
