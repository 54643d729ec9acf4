"""What can be chosen in a form."""

from enum import IntEnum
from typing import Any, Literal

import pytest

from ekiden import UsageError
from ekiden.server.questions.forms import form_for


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
