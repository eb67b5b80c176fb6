from __future__ import annotations

import re

from sbnotebook.emulator.entities import Condition
from sbnotebook.emulator.service.conditions import new_error


def test_each_error_has_a_tracking_id_of_its_own() -> None:
    descriptions = [str(new_error(Condition.NOT_FOUND, "It is gone.").description) for _ in range(2)]
    for description in descriptions:
        assert re.fullmatch(
            r"It is gone\. TrackingId:[0-9a-f-]{36}, SystemTracker:emulator, Timestamp:[0-9T:-]{19}", description
        )
    assert descriptions[0] != descriptions[1]
