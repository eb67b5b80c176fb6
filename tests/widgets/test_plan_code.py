from __future__ import annotations

from sbnotebook.client import Namespace
from sbnotebook.widgets.plan_code import PlanCode
from tests.filled_queues import filled_client_queue


def test_code_of_a_plan_is_shown_on_a_click_and_forgotten(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "shown-as-code", 3)
    code = PlanCode()
    code.offer(queue.resubmit([1, 2], to="shown-as-code"), target="shop.servicebus.windows.net", rate=5.0)
    assert code.field.layout.display == "none"
    code.cell.click()
    assert code.field.value == "%sb_resubmit shown-as-code --messages 1-2 --to shown-as-code --rate 5\n"
    assert code.field.layout.display is None
    code.python.click()
    assert "connect('shop.servicebus.windows.net')" in code.field.value
    assert "plan.apply(rate=5.0)" in code.field.value

    code.offer(queue.plan_send(["a"]), target=None, rate=None)  # which has no code
    assert (code.layout.display, code.field.value) == ("none", "")
