"""The journal, the archive and the notes as tables for SQL."""

from __future__ import annotations

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import ConfigurationError
from tests.filled_queues import filled_client_queue

SENT_BACK = """
    select cause, any_value(note) as note, any_value(dead_letter_reason) as reason, count(*) as sent_back
    from journal left join notes using (cause)
    where resubmitted > now() - interval 7 day group by cause order by sent_back desc
"""


def test_one_query_counts_resubmits_by_cause(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "told", 5)
    with queue.lock(5) as batch:
        batch.dead_letter(where="message_id < 'm3'", reason="NoCarrier", description="order 1 has none")
        batch.dead_letter(reason="Late")
    letters = namespace.entity("told/$dlq")
    causes = letters.peek().groups()
    namespace.note(causes[0].fingerprint, "wait for the carrier")
    letters.resubmit(letters.peek()).apply(show_progress=False).raise_for_failures()
    found = namespace.sql(SENT_BACK)
    assert found["cause"].tolist() == [cause.fingerprint for cause in causes]
    assert found["sent_back"].tolist() == [3, 2]
    assert found["reason"].tolist() == ["NoCarrier", "Late"]
    assert found["note"][0] == "wait for the carrier"

    # The archive has the originals; their bodies only if asked for. A query may join messages, too.
    query = "select count(*) as n, min(verb) as verb, min(archive_state) as state from archive where cause is not null"
    assert namespace.sql(query).iloc[0].tolist() == [5, "resubmit", "removed"]
    assert namespace.sql("select body_text from archive order by all", bodies=True)["body_text"].tolist() == [*"01234"]
    joined = "select m.message_id as now from messages m join journal j on m.message_id = j.clone_id"
    assert len(namespace.sql(joined, "told", show_progress=False)) == 5


def test_a_query_without_bodies_names_the_option_for_them(namespace: Namespace) -> None:
    said = r"no column 'body_text' at character 8; the table messages has it, and archive with bodies=True"
    with pytest.raises(ConfigurationError, match=said):
        namespace.sql("select body_text from archive")


def test_tables_without_rows_are_empty(namespace: Namespace) -> None:
    query = (
        "select (select count(*) from archive where entity = 'no') + (select count(*) from notes where cause = 'no') n"
    )
    assert namespace.sql(query)["n"].tolist() == [0]
