from __future__ import annotations

from importlib import import_module

import pytest

from sbnotebook.analysis import frames


def test_old_place_of_frames_warns() -> None:
    with pytest.warns(FutureWarning, match=r"is now in sbnotebook\.analysis\.frames"):
        assert import_module("sbnotebook.client.frames").to_arrow is frames.to_arrow
