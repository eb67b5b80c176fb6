from __future__ import annotations

import subprocess
import sys

import pytest

import sbnotebook.testing
from sbnotebook.settlement.connecting import administration_clients


def test_every_public_name_is_there() -> None:
    for name in sbnotebook.testing.__all__:
        assert getattr(sbnotebook.testing, name) is getattr(administration_clients, name)
        assert name in dir(sbnotebook.testing)


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(sbnotebook.testing, "nothing")  # noqa: B009


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, sbnotebook.testing; print(*{'azure', 'aiohttp', 'pandas', 'hypothesis'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "\n"
