from __future__ import annotations

import pytest

from sbnotebook.demo.job import Reconciliation


def balanced() -> Reconciliation:
    return Reconciliation(
        expected=3,
        sent=["a", "b", "c"],
        stored={1: "a", 2: "b", 3: "c"},
        stored_count=3,
        completed=[1],
        dead_lettered=[2],
        resubmitted=[3],
        clones_completed=["c"],
    )


def test_balanced_books_have_no_problems() -> None:
    assert balanced().problems() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sent": ["a", "b", "c", "d"]}, "did not hold"),
        ({"sent": ["a", "b"]}, "did not send"),
        ({"expected": 4}, "not confirmed"),
        ({"stored": {1: "a", 2: "b", 3: "b"}, "sent": ["a", "b"]}, "held twice"),
        ({"completed": []}, "ended nowhere"),
        ({"completed": [1, 2]}, "ended twice"),
        ({"completed": [1, 9]}, "never stored"),
        ({"clones_completed": []}, "clones that were not completed"),
        ({"clones_completed": ["c", "c"]}, "completed twice"),
        ({"clones_completed": ["c", "a"]}, "not resubmitted"),
        ({"left_over": 1}, "left in the queue"),
        ({"stored_count": 4}, "occur twice"),
    ],
)
def test_a_lost_or_doubled_message_is_found(change: dict[str, object], words: str) -> None:
    books = balanced()
    for name, value in change.items():
        setattr(books, name, value)
    assert any(words in problem for problem in books.problems())
