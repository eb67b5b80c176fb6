from __future__ import annotations

import sys
from importlib import import_module

import pytest

from sbnotebook.widgets import action_panel


def test_the_former_place_of_the_panel_works_and_warns() -> None:
    for name in ("sbnotebook.widgets.acting", "sbnotebook.widgets.acting.action_panel"):
        sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=r"is now sbnotebook\.widgets\.action_panel"):
        former = import_module("sbnotebook.widgets.acting.action_panel")
    assert former is action_panel
