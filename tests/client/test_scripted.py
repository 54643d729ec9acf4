"""Answers that were written down beforehand: found by key, by message, or by a part of the message."""

from typing import Any

import pytest

from ekiden.client.scripted import find_entries, question_text
from ekiden.testing import Unanswered
from ekiden.testing.answers import respond

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"value": {}}, "required": ["value"]}
FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "Pay 5 for the seats?", "requestedSchema": SCHEMA},
}


def sampling(content: Any) -> dict[str, Any]:
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": content}]},
    }


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["k", "Pay 5 for the seats?", "Pay"], ["k"]),
        (["Pay 5 for the seats?", "Pay"], ["Pay 5 for the seats?"]),
        (["Pay", "Cancel"], ["Pay"]),
        (["Pay", "seats"], ["Pay", "seats"]),
        (["", "pay"], []),
    ],
)
def test_the_key_comes_first_then_the_message_then_its_parts(names: list[str], found: list[str]) -> None:
    assert find_entries(names, "k", question_text(FORM)) == found


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"type": "text", "text": "Hello?"}, "Hello?"),
        ([{"type": "text", "text": "One"}, {"type": "image"}, {"type": "text", "text": "two"}], "One  two"),
        ("malformed", ""),
        (None, ""),
    ],
)
def test_a_question_to_the_model_is_its_last_message(content: Any, text: str) -> None:
    assert question_text(sampling(content)) == text


def test_a_question_without_one_answer_is_named() -> None:
    with pytest.raises(Unanswered, match=r"no answer to 'Pay 5 for the seats[?]' .key 'k'."):
        respond({"Other": True}, "k", FORM)
    with pytest.raises(Unanswered, match=r"several answers .'Pay', 'seats'."):
        respond({"Pay": True, "seats": 2}, "k", FORM)
    assert respond({"seats": 2}, "k", FORM) == {"action": "accept", "content": {"value": 2}}
