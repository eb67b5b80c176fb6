"""The script that finds the tests of what changed."""

from __future__ import annotations

from scripts.related_tests import FAST, ROOT, SLOW, related_tests


def test_a_module_has_its_own_tests_before_its_users() -> None:
    found = related_tests(["sbnotebook/emulator/entities/queue.py"])
    assert found[0] == "tests/emulator/entities/test_queue.py"
    assert {"tests/emulator/entities/test_queue_dead_letters.py", "tests/emulator/entities/test_registry.py"} < {*found}
    assert "tests/model/test_address.py" not in found


def test_a_changed_test_runs_itself_even_if_it_is_slow() -> None:
    slow = "tests/crash/test_streams.py"
    assert slow.startswith(SLOW)
    assert related_tests([slow]) == [slow]
    assert not [test for test in related_tests(["sbnotebook/errors.py"]) if test.startswith(SLOW)]


def test_what_tests_share_runs_the_tests_that_use_it() -> None:
    assert "tests/client/test_batch.py" in related_tests(["tests/filled_queues.py"])
    assert "tests/spark/test_peek_reader.py" in related_tests(["tests/spark/conftest.py"])
    assert related_tests(["scripts/prose.py"]) == ["tests/house/test_prose.py"]
    assert related_tests(["Makefile"]) == []


def test_the_fast_tests_are_there() -> None:
    assert all([*(ROOT / folder).glob("test_*.py")] for folder in FAST)
