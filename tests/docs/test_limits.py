"""The table of limits is that of the code, and every limit has a reason."""

import re

import msgspec
import pytest

import ekiden
from ekiden import ClientLimits, HttpLimits, Recording, RoundLimits, SessionLimits, TaskLimits
from scripts.limits import PAGE, page, reasons


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run: python -m scripts.limits --write"


@pytest.mark.parametrize(
    "kind", [ClientLimits, HttpLimits, Recording, RoundLimits, SessionLimits, TaskLimits]
)
def test_every_limit_has_a_reason(kind: type[msgspec.Struct]) -> None:
    told = reasons(kind)
    assert {field.name for field in msgspec.structs.fields(kind)} == told.keys()
    assert [name for name, reason in told.items() if not reason.endswith(".")] == []


def test_every_class_of_limits_is_on_the_page() -> None:
    kinds = [name for name in ekiden.__all__ if name.endswith("Limits") or name == "Recording"]
    assert sorted(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)) == sorted(kinds)
