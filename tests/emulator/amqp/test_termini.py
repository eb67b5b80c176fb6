from __future__ import annotations

import pytest

from sbnotebook.emulator.amqp.composites import decode_composite, encode_composite
from sbnotebook.emulator.amqp.outcomes import Released
from sbnotebook.emulator.amqp.termini import Coordinator, Source, Target


@pytest.mark.parametrize(
    "terminus",
    [
        Source(),
        Source("amqps://localhost:5672/orders", filter={"com.microsoft:session-filter": None}),
        Source("orders", outcomes=("amqp:accepted:list",), default_outcome=Released(), capabilities=("queue",)),
        Target(),
        Target("orders", durable=2, expiry_policy="never", timeout=7, capabilities=("queue", "topic")),
        Coordinator(("amqp:local-transactions",)),
    ],
)
def test_what_is_written_is_read(terminus: object) -> None:
    data = encode_composite(terminus)
    assert decode_composite(data) == (terminus, len(data))


@pytest.mark.parametrize("terminus", [Source(), Target()])
def test_an_empty_terminus_is_no_empty_list(terminus: object) -> None:
    # azure-servicebus takes an empty list for a refusal.
    assert encode_composite(terminus)[3] != 0x45
