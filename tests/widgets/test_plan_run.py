from __future__ import annotations

from sbnotebook.widgets.plan_run import rate_of


def test_rate_is_that_of_the_first_to_the_last_sample() -> None:
    assert rate_of([]) is None
    assert rate_of([(0.0, 0), (0.5, 100)]) is None, "too soon"
    assert rate_of([(second, 100 + 10 * round(second)) for second in (14.0, 15.0, 19.0)]) == 10.0
    assert rate_of([(30.0, 300), (32.0, 300)]) == 0.0
