"""What can be chosen in a form."""

from enum import IntEnum
from typing import Any, Literal

import pytest

from ekiden import UsageError
from ekiden.server.questions.forms import form_for
from ekiden.signals import UnfitAnswer


class Wheels(IntEnum):
    TWO = 2
    FOUR = 4


@pytest.mark.parametrize(
    "choice", [Literal[1, 2], Literal[1], Literal["one", 2], Wheels, list[Literal[1, 2]], list[Wheels]]
)
def test_a_choice_of_numbers_is_refused_with_what_to_write_instead(choice: Any) -> None:
    with pytest.raises(UsageError, match=r"'value': choices must be texts, as in Literal\['1', '2'\]"):
        form_for(choice)


@pytest.mark.parametrize("choice", [Literal["1", "2"], Literal["1"], list[Literal["1", "2"]]])
def test_a_choice_of_texts_is_a_form(choice: Any) -> None:
    assert form_for(choice).ask("Which?")


def test_texts_that_are_known_when_the_handler_runs_are_a_choice_of_one() -> None:
    form = form_for(["Old Inn", "Capsule", "Old Inn"])
    assert form.schema["properties"] == {"value": {"type": "string", "enum": ["Old Inn", "Capsule"]}}
    chosen = form.read({"action": "accept", "content": {"value": "Capsule"}})
    assert (chosen.action, chosen.data) == ("accept", "Capsule")
    with pytest.raises(UnfitAnswer):
        form.read({"action": "accept", "content": {"value": "Ritz"}})
    assert form_for(("Old Inn", "Capsule")).spelled == form.spelled


@pytest.mark.parametrize("choices", [[], (), [1, 2], ["one", 2], [["one"]]])
def test_choices_that_are_no_texts_are_refused_with_what_to_write_instead(choices: Any) -> None:
    with pytest.raises(UsageError, match=r'as in \["red", "blue"\]'):
        form_for(choices)
