from __future__ import annotations

from sbnotebook.widgets.background import Callbacks


def test_callbacks_report_a_failure_and_call_the_others() -> None:
    said: list[str] = []
    called: list[int] = []
    callbacks = Callbacks(said.append)

    def fail(number: int) -> None:
        raise LookupError(f"no {number}")

    callbacks.add(fail)
    end = callbacks.add(called.append)
    callbacks(1)
    end()
    end()
    callbacks(2)
    assert (called, said) == ([1], ["LookupError: no 1", "LookupError: no 2"])


def test_one_can_end_itself_while_it_is_called() -> None:
    called: list[str] = []
    callbacks = Callbacks(called.append)

    def once() -> None:
        called.append("once")
        end()

    end = callbacks.add(once)
    callbacks.add(lambda: called.append("always"))
    callbacks()
    callbacks()
    assert called == ["once", "always", "always"]
