from __future__ import annotations

from importlib import import_module

import pytest

from sbnotebook.analysis import query


def test_old_place_of_query_warns() -> None:
    with pytest.warns(FutureWarning, match=r"is now in sbnotebook\.analysis\.query"):
        assert import_module("sbnotebook.client.query").where is query.where


def test_old_place_of_query_has_no_other_names() -> None:
    with pytest.raises(AttributeError):
        _ = import_module("sbnotebook.client.query").missing
