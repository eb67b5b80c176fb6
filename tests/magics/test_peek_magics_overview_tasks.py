"""``%sb``, and the names that new users type first."""

from __future__ import annotations

import re

import pytest

from sbnotebook.magics.arguments import OTHER_NAMES, TASKS, VERBS
from tests.magics.conftest import Shell


@pytest.fixture(scope="module")
def tried(shell: Shell) -> Shell:
    shell.run("%sb_create queue tried\nrows = [{'subject': s, 'body': s} for s in 'aab']\n%sb_send tried rows")
    return shell


def test_sb_shows_every_magic_by_task(tried: Shell) -> None:
    shown = repr(tried.run("%sb").value)
    assert re.findall(r"%sb_(\w+) +│", shown) == list(VERBS)
    assert all(task in shown for task in TASKS)
    magics = tried.ipython.magics_manager.magics["line"]
    assert sorted(VERBS) == sorted(name.removeprefix("sb_") for name in magics if name.startswith("sb_"))
    assert "<table" in tried.run("%sb").value._repr_html_()


def test_sb_with_a_verb_runs_the_magic(tried: Shell) -> None:
    assert len(tried.run("found = %sb peek tried -n 2\nfound").value) == 2
    assert (
        len(
            tried.run(
                "def look():\n    name = 'tried'\n    return get_ipython().run_line_magic('sb', 'peek {name}')\nlook()"
            ).value
        )
        == 3
    )
    assert tried.run("%%sb sql tried\nselect count(*) as n from messages").value["n"][0] == 3
    assert tried.run("%sb_peek tried 2").value[-1].subject == "a"
    assert tried.error("%sb peke tried") == "There is no magic %sb peke; did you mean %sb_peek? %sb shows all magics."
    assert tried.error("%%sb peek tried\nx") == "%%sb peek takes no cell: write it on one line, %sb_peek."


def test_dlq_is_the_dead_letter_queue(tried: Shell) -> None:
    tried.run("%sb_pick tried --messages 3 --dead-letter --reason Bad --yes")
    assert [m.subject for m in tried.run("%sb_peek tried --dlq").value] == ["b"]
    assert [m.subject for m in tried.run("%sb_peek tried/$dlq --dlq -n 1").value] == ["b"]


def test_messages_takes_a_part_of_a_variable(tried: Shell) -> None:
    tried.run("causes = namespace.entity('tried').peek().groups('subject')\nbox = {'k': causes}")
    for part in ("causes[0]", "causes[-1].messages", "box['k'][0]"):
        assert len(tried.run(f"%sb_pick tried --messages {part} --complete --dry-run").value) == 2, part
    assert tried.error("%sb_pick tried --messages causes[9] --complete") == "'causes[9]' has no value: IndexError."
    assert tried.error("%sb_pick tried --messages cause[0] --complete").startswith(
        "There is no variable 'cause' (did you mean causes?)"
    )


def test_other_names_lead_to_a_magic_and_to_no_removal(tried: Shell) -> None:
    assert not OTHER_NAMES.keys() & set(VERBS)
    for name, meant in OTHER_NAMES.items():
        assert re.match(r"%sb(?:_(\w+))?", meant), name
        assert meant.split()[0].removeprefix("%sb").lstrip("_") in {"", *VERBS}, name
        assert "purge" not in meant
    assert "did you mean" not in tried.error("%sb_delete tried")


def test_loading_says_how_to_begin(unconnected: Shell) -> None:
    unconnected.ipython.magics_manager.magics["line"].pop("sb")
    ran = unconnected.run("%reload_ext sbnotebook")
    assert ran.out == "sbnotebook is loaded: %sb_connect connects, and %sb shows all magics.\n"
