from __future__ import annotations

from sbnotebook.client import Namespace
from sbnotebook.widgets.plan_text import PlanCode
from tests.filled_queues import filled_client_queue


def test_code_of_a_plan_is_shown_on_a_click_and_forgotten(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "shown-as-code", 3)
    code = PlanCode()
    code.offer(queue.resubmit([1, 2], to="shown-as-code"), target="shop.servicebus.windows.net", rate=5.0)
    assert (code.view.layout.display, code.shown) == ("none", "")
    code.cell.click()
    assert code.shown == "%sb_resubmit shown-as-code --messages 1-2 --to shown-as-code --rate 5\n"
    assert code.view.layout.display is None
    code.python.click()
    assert "connect('shop.servicebus.windows.net')" in code.shown
    assert "plan.apply(rate=5.0)" in code.shown

    code.offer(queue.resubmit([]), target=None, rate=None)  # which has no code
    assert (code.layout.display, code.shown) == ("none", "")
