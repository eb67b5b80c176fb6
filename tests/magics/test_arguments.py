from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import Quoted, expanded, refuse_connection_string, split_words
from tests.magics.conftest import Shell


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("orders", ["orders"]),
        ("  orders   -n 5 ", ["orders", "-n", "5"]),
        ("""--where "subject = 'UA'" -n 5""", ["--where", "subject = 'UA'", "-n", "5"]),
        ("""--where='delivery_count > 1'""", ["--where=delivery_count > 1"]),
        ("""--where subject='UA'""", ["--where", "subject='UA'"]),
        ("""--where "body_json->>'$.a' = 'b'" """, ["--where", "body_json->>'$.a' = 'b'"]),
        ("""orders '{"a": 1}' """, ["orders", '{"a": 1}']),
        ('""', [""]),
    ],
)
def test_split_words_removes_quotes(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_word_in_quotes_is_known_as_one() -> None:
    plain, quoted = split_words("orders 'orders'")
    assert (isinstance(plain, Quoted), isinstance(quoted, Quoted)) == (False, True)


@given(st.lists(st.text(st.characters(exclude_characters="\"'", exclude_categories=["Cs"]), max_size=12)))
def test_whatever_stands_in_quotes_is_one_word(texts: list[str]) -> None:
    assert split_words(" ".join(f'"{text}"' for text in texts)) == texts


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("{queue}", "orders"),
        ("$queue/$dlq", "orders/$dlq"),
        ("{queue}/$DeadLetterQueue", "orders/$DeadLetterQueue"),
        ("{count + 1}", "3"),
        ("subject = '{queue}'", "subject = 'orders'"),
        ("body_json->>'$.queue' = 'x'", "body_json->>'$.queue' = 'x'"),
        ('{"queue": 1}', '{"queue": 1}'),
        ("$missing", "$missing"),
        ("{1 / 0}", "{1 / 0}"),
    ],
)
def test_variables_expand_and_addresses_stay(word: str, text: str) -> None:
    assert expanded(word, {"queue": "orders", "count": 2, "dlq": "not this one"}) == text


def test_the_value_of_a_variable_is_no_option() -> None:
    with pytest.raises(UsageError, match="begins with a dash"):
        expanded("{text}", {"text": "--yes"})


@pytest.mark.parametrize("line", ["%sb_peek --help", "%sb_peek -h", "%sb_peek orders -n 5 --help"])
def test_help_is_shown_and_nothing_else_happens(unconnected: Shell, line: str) -> None:
    ran = unconnected.run(line)
    assert ran.err == ""
    assert "%sb_peek [-n N]" in ran.out
    assert "body_json->>'$.carrier'" in ran.out, "the example"


@pytest.mark.parametrize(
    "line",
    [
        "%sb_delete orders",
        "%sb_purg orders",
        "%sb_remove orders",
        "%sb_compete",
        "%sb_pick orders -n 1 --delete",
        "%sb_pick orders -n 1 --compleet",
        "%sb_purge orders --force",
        "%sb_purge orders --noarchive",
        "%sb_connect --where",
    ],
)
def test_no_slip_leads_to_a_removal(unconnected: Shell, line: str) -> None:
    assert "did you mean" not in unconnected.error(line)


@pytest.mark.parametrize(
    ("line", "option"),
    [("%sb_pick orders -n 1 --com", "--com"), ("%sb_purge o --y", "--y")],
)
def test_half_an_option_is_none(unconnected: Shell, line: str, option: str) -> None:
    assert f"has no option {option}; there are --" in unconnected.error(line)


def test_help_shows_the_arguments_and_an_example(unconnected: Shell) -> None:
    ran = unconnected.run("%sb_peek?")
    assert "--where EXPRESSION" in ran.out
    assert "%sb_peek orders/$dlq" in ran.out


def test_magics_have_an_example(unconnected: Shell) -> None:
    manager = unconnected.ipython.magics_manager
    magics = {name: magic for name, magic in manager.magics["line"].items() if name.startswith("sb_")}
    assert len(magics) == 31
    assert not [name for name, magic in magics.items() if f"%{name} " not in magic.__doc__]


def test_local_variable_of_a_function_expands(shell: Shell) -> None:
    code = "def peek(queue):\n    get_ipython().run_line_magic('sb_peek', '{queue} --into found')\n"
    shell.run("namespace.create_queue('local-name')")
    shell.run(code + "peek('local-name')")
    assert len(shell.variables["found"]) == 0


LINE = "Endpoint=sb://HOST/;SharedAccessKeyName=root;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace("HOST", "shop.servicebus.windows.net"),
        LINE.replace("HOST", "sb-emulator:5672"),
        LINE.replace("HOST", "localhost").replace(";Use", ";EntityPath=Use"),
        LINE.replace("HOST", "localhost").replace("true", "false"),
        f"--into UseDevelopmentEmulator=true {LINE.replace('HOST', 'shop').rpartition(';')[0]}",
        LINE.replace("HOST", "localhost").replace(";Shared", "; Shared"),
    ],
    ids=["Azure", "another machine", "in another part", "false", "elsewhere in the line", "in two words"],
)
def test_a_key_is_typed_for_an_emulator_of_this_machine_only(line: str) -> None:
    with pytest.raises(ConfigurationError, match="would be kept in the notebook"):
        refuse_connection_string(line)


@pytest.mark.parametrize(
    "line", [LINE.replace("HOST", "127.0.0.1:5672"), f"'{LINE.replace('HOST', 'localhost')}' --write"]
)
def test_the_key_of_an_emulator_of_this_machine_may_be_typed(line: str) -> None:
    refuse_connection_string(line)


def test_a_message_with_a_word_of_secrets_may_be_typed() -> None:
    refuse_connection_string("orders 'password: swordfish'")
