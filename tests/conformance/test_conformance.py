"""A few of the SDK's own live tests, and what the lists beside the runner must hold."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_SYNC = "test_queues.py::TestServiceBusQueue::"
_ASYNC = "async_tests/test_queues_async.py::TestServiceBusQueueAsync::"
QUICK = [
    f"{_SYNC}test_queue_by_queue_client_send_multiple_messages[pyamqp]",
    f"{_SYNC}test_queue_complete_message_on_different_receiver[pyamqp]",
    f"{_SYNC}test_queue_message_settle_through_mgmt_link_due_to_broken_receiver_link[pyamqp]",
    f"{_SYNC}test_state_deferred[pyamqp]",
    f"{_SYNC}test_state_scheduled[pyamqp]",
    f"{_ASYNC}test_async_queue_by_servicebus_client_browse_messages_client[pyamqp]",
    f"{_ASYNC}test_async_queue_by_servicebus_client_enum_case_sensitivity[pyamqp]",
    f"{_ASYNC}test_async_queue_by_servicebus_client_iter_messages_with_retrieve_deferred_receiver_complete[pyamqp]",
    f"{_ASYNC}test_async_queue_message_batch_large[pyamqp]",
]
ADMINISTRATION = 101


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a part of the runner, which is a folder that Python runs and no package."""
    monkeypatch.setattr(sys, "path", [str(HERE), *sys.path])
    return importlib.import_module


def function_names(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_sdks_quick_live_tests_pass() -> None:
    # Two processes: each takes three seconds of a processor to start.
    command = [sys.executable, str(HERE), "--workers", "2", *QUICK, "mgmt_tests"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=540)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(QUICK) + ADMINISTRATION} passed" in result.stdout


def test_a_failure_must_be_listed_and_a_listed_one_must_fail(part: Any) -> None:
    verdict = part("verdict")
    ended = {name: verdict.Outcome(name, 0.1, "") for name in ("passed", "failed", "skipped", "xfailed")}

    assert verdict.judge(ended, {"failed": "reason"}).is_good
    assert verdict.judge(ended, {}).failed == ["failed"]
    assert verdict.judge(ended, {"failed": "reason", "passed": "reason"}).passed == ["passed"]
    assert verdict.judge(ended, {"failed": "reason", "other": "reason"}).gone == ["other"]
    assert verdict.judge(ended, {"failed": "reason", "other": "reason"}, is_whole=False).is_good


def test_expected_failures_are_sdk_tests_with_reasons(part: Any) -> None:
    folder = part("source").tests_of_the_sdk()
    for test, reason in part("verdict").expected_failures().items():
        file, _, name = test.partition("::")
        assert name.rpartition("::")[2].partition("[")[0] in function_names(folder / file)
        assert reason.endswith(".")


def test_every_feature_is_shown_by_tests_that_there_are(part: Any) -> None:
    report, folder = part("report"), part("source").tests_of_the_sdk()
    shown = [report.place(test, folder) for each in report.features() for test in each.tests]
    assert not [(path, name) for path, name in shown if not path.is_file() or name not in function_names(path)]
    assert all(each.tests for each in report.features())


def test_no_feature_is_shown_by_a_test_that_fails(part: Any) -> None:
    failing = {test.rpartition("::")[2].partition("[")[0] for test in part("verdict").expected_failures()}
    shown = {test.rpartition("::")[2] for each in part("report").features() for test in each.tests}
    assert not failing & shown


def test_the_page_has_the_features(part: Any) -> None:
    report = part("report")
    assert report.feature_table() in report.PAGE.read_text()


def test_the_tests_of_the_sdk_are_those_of_the_locked_version(part: Any) -> None:
    wanted = (HERE / "azure-servicebus.txt").read_text().splitlines()[-1]
    version, _, digest = wanted.partition(" --hash=")
    assert version == f"azure-servicebus=={part('source').VERSION}"
    assert digest in (ROOT / "requirements" / "dev.txt").read_text().partition(version)[2]
