from __future__ import annotations

from sbnotebook.widgets.plan_run import Speed


def test_speed_measures_the_last_seconds() -> None:
    speed = Speed()
    speed.note(0.0, 0)
    speed.note(0.5, 100)
    assert (speed.a_second, speed.seconds_for(10)) == (None, None)
    for second in range(1, 20):
        speed.note(float(second), 100 + 10 * second)
    assert (speed.a_second, speed.seconds_for(20)) == (10.0, 2.0)
    speed.forget()
    assert speed.a_second is None
    speed.note(30.0, 300)
    speed.note(32.0, 300)
    assert (speed.a_second, speed.seconds_for(10)) == (0.0, None)
