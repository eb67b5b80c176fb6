"""Clients of one namespace that is throttled: each finds its share, whenever and however fast it begins."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from statistics import mean
from typing import Final, NamedTuple

import pytest

from sbnotebook.settlement.pace import Limiter
from tests.chances import rounds

SEEDS: Final = rounds(2, 3)
ALLOWED: Final = 1000
TICK: Final = 0.005
"""Seconds in which a client looks whether it may begin something."""
FASTEST: Final = 20
"""Operations that a client can begin in a tick."""
MOST_WAITING: Final = 400
ROUND_TRIPS: Final = (0.0, 0.01, 0.1, 0.15)
TOGETHER: Final = (1, 20)
"""Operations that Service Bus accepts or refuses together: a settlement, and a transfer's messages after a refusal."""


class Client:
    """Always has more to do."""

    def __init__(self, rate: Limiter, begins_at: float, ends_at: float = math.inf) -> None:
        self.rate = rate
        self.begins_at, self.ends_at = begins_at, ends_at
        self.waiting = 0
        self.answers: list[tuple[float, bool]] = []

    def begin(self, together: int) -> int:
        """Return how many groups of operations it begins now."""
        begun = 0
        while self.waiting < MOST_WAITING and begun * together < FASTEST and self.rate.is_open():
            self.rate.began(together)
            self.waiting += together
            begun += 1
        return begun

    def answer(self, at: float, together: int, *, is_accepted: bool) -> None:
        self.waiting -= together
        self.answers.append((at, is_accepted))
        if is_accepted:
            self.rate.accepted(together)
        else:
            self.rate.refused()


@dataclass
class BusyNamespace:
    """Accepts so many operations in each of its seconds; all times are the test's own.

    Args:
        seconds: of a round trip; each way takes up to a tenth longer at random.
        together: operations of a group.
        seed: of all that is left to chance, such as the begin of the namespace's seconds.
        allowed: operations in each second.
    """

    seconds: float
    together: int
    seed: int
    allowed: int = ALLOWED
    now: float = 0.0
    clients: list[Client] = field(default_factory=list[Client])

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 (not for secrets)
        self._phase = self._chance.random()
        self._second, self._used = -1, 0

    def serve(self, begins: Sequence[float], until: float, *, first_ends_at: float = math.inf) -> None:
        self.clients = [Client(Limiter(lambda: self.now), at) for at in begins]
        self.clients[0].ends_at = first_ends_at
        order = count()
        coming: list[tuple[float, int, Client]] = []
        answers: list[tuple[float, int, Client, bool]] = []
        while self.now < until:
            here = [client for client in self.clients if client.begins_at <= self.now < client.ends_at]
            for client in self._chance.sample(here, len(here)):
                for _ in range(client.begin(self.together)):
                    heapq.heappush(coming, (self._after(self.now), next(order), client))
            self.now += TICK * self._chance.uniform(0.5, 1.5)
            while coming and coming[0][0] <= self.now:
                at, _, client = heapq.heappop(coming)
                heapq.heappush(answers, (self._after(at), next(order), client, self._accepts(at)))
            while answers and answers[0][0] <= self.now:
                at, _, client, is_accepted = heapq.heappop(answers)
                client.answer(at, self.together, is_accepted=is_accepted)

    def rates(self, start: float, end: float) -> list[float]:
        """Operations of each client that were accepted in a second."""
        return [self._count(client, start, end)[True] / (end - start) for client in self.clients]

    def refused(self, start: float, end: float) -> float:
        """The part of all operations that was refused."""
        counts = [self._count(client, start, end) for client in self.clients]
        return sum(each[False] for each in counts) / sum(sum(each.values()) for each in counts)

    def _count(self, client: Client, start: float, end: float) -> dict[bool, int]:
        answers = [is_accepted for at, is_accepted in client.answers if start <= at < end]
        return {kind: answers.count(kind) * self.together for kind in (True, False)}

    def _after(self, at: float) -> float:
        return at + self.seconds / 2 * self._chance.uniform(1.0, 1.1)

    def _accepts(self, at: float) -> bool:
        second = int(at + self._phase)
        if second != self._second:
            self._second, self._used = second, 0
        is_accepted = self._used < self.allowed
        self._used += self.together * is_accepted
        return is_accepted


# When each client begins.
TWO: Final = {
    "together": [0, 0.3],
    "in the search of the first": [0, 3],
    "soon after the search of the first": [0, 8],
    "late": [0, 12],
}


class Served(NamedTuple):
    """The result of a run in the ten seconds that begin ten seconds after the last client."""

    uneven: float
    """The largest deviation of a client's share from an even share, as a part of the even share."""
    rate: float
    """Operations of all clients in a second."""
    refused: float
    """The part that was refused, from five seconds after the last client."""


def served(begins: Sequence[float], together: int) -> list[Served]:
    """Return the result of each run: with each round trip and seed."""
    runs: list[Served] = []
    for seconds, seed in product(ROUND_TRIPS, range(SEEDS)):
        namespace = BusyNamespace(seconds, together, seed)
        last = begins[-1]
        namespace.serve(begins, last + 20)
        rates = namespace.rates(last + 10, last + 20)
        even = sum(rates) / len(rates)
        uneven = max(abs(rate / even - 1) for rate in rates)
        runs.append(Served(uneven, sum(rates), namespace.refused(last + 5, last + 20)))
    return runs


def part(matches: Iterable[bool]) -> float:
    """Return the part of runs that match."""
    return mean(map(float, matches))


@pytest.mark.parametrize("together", TOGETHER)
def test_one_client_takes_nearly_all_that_is_allowed(together: int) -> None:
    for seconds, seed in product(ROUND_TRIPS, range(SEEDS)):
        namespace = BusyNamespace(seconds, together, seed)
        namespace.serve([0], 30)
        assert namespace.rates(5, 30)[0] >= 0.9 * ALLOWED
        assert namespace.refused(5, 30) < 0.02


@pytest.mark.parametrize("together", TOGETHER)
@pytest.mark.parametrize("begins", TWO.values(), ids=TWO)
def test_two_clients_come_to_share_evenly(begins: Sequence[float], together: int) -> None:
    runs = served(begins, together)
    assert part(run.uneven <= 0.2 for run in runs) >= 0.75, "40 % to 60 %"
    assert max(run.uneven for run in runs) <= 0.4, "30 % to 70 %"
    assert min(run.rate for run in runs) >= 0.9 * ALLOWED
    assert mean(run.refused for run in runs) < 0.025
    assert max(run.refused for run in runs) < 0.05


def test_a_client_takes_what_another_one_leaves() -> None:
    namespace = BusyNamespace(0.1, 1, seed=1)
    namespace.serve([0, 0], 60, first_ends_at=20)
    assert namespace.rates(50, 60)[1] >= 0.9 * ALLOWED


def test_a_namespace_that_refuses_all_is_hardly_asked() -> None:
    namespace = BusyNamespace(0.1, 1, seed=1, allowed=0)
    namespace.serve([0], 30)
    assert 10 <= sum(at > 10 for at, _ in namespace.clients[0].answers) <= 40
