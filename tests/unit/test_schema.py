"""Data from YAML and JSON becomes frozen dataclasses, or an error that names the place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal

import pytest

from tfctl import schema


@dataclass(frozen=True)
class Wheel:
    size: int
    flat: bool = False


@dataclass(frozen=True)
class Car:
    name: Annotated[str, re.compile(r"^[a-z]+$")]
    built: date
    fuel: Literal["petrol", "diesel"]
    wheels: tuple[Wheel, ...]
    from_: str | None = None
    seats: Mapping[str, int] = field(default_factory=dict)
    place: str = field(default="", metadata=schema.DERIVED)


GOOD: dict[str, Any] = {
    "name": "beetle", "built": date(1955, 8, 5), "fuel": "petrol", "wheels": [{"size": 15}, {"size": 15, "flat": True}],
    "from": "Wolfsburg", "seats": {"front": 2},
}  # fmt: skip


def test_schema_builds_the_dataclass_and_returns_the_same_plain_data() -> None:
    car = schema.parse(Car, GOOD)
    assert car == Car("beetle", date(1955, 8, 5), "petrol", (Wheel(15), Wheel(15, True)), "Wolfsburg", {"front": 2})
    whole = {**GOOD, "built": "1955-08-05", "wheels": [{"size": 15, "flat": False}, {"size": 15, "flat": True}]}
    assert schema.plain(car) == {**whole, "place": ""}
    assert schema.parse(Car, {**GOOD, "from": None}).from_ is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Beetle"}, "name: 'Beetle' does not match ^[a-z]+$"),
        ({"name": 5}, "name: expected text, not 5"),
        ({"built": "1955"}, "built: expected a date, not '1955'"),
        ({"fuel": "wood"}, "fuel: expected petrol or diesel, not 'wood'"),
        ({"wheels": [{"size": 15}, {"size": True}]}, "wheels/1/size: expected a whole number, not True"),
        ({"wheels": [{"flat": True}]}, "wheels/0/size: missing"),
        ({"wheels": "15"}, "wheels: expected a list, not '15'"),
        ({"wheels": [15]}, "wheels/0: expected a mapping, not 15"),
        ({"seats": {"front": "2"}}, "seats/front: expected a whole number, not '2'"),
        ({"from_": "Emden"}, "from_: unknown key"),
        ({"place": "Emden"}, "place: unknown key"),
    ],
)
def test_schema_refuses_wrong_data_and_names_the_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(schema.SchemaError) as raised:
        schema.parse(Car, {**GOOD, **change})
    assert str(raised.value) == message
