"""Words as values, answers given beforehand, and fields as a server describes them."""

import re
from pathlib import Path
from typing import Any

import pytest

from ekiden.cli.arguments import parse_arguments, split_pair, typed
from ekiden.cli.terminal.answers import read_answers
from ekiden.cli.terminal.asking import _described
from ekiden.cli.terminal.fields import Field
from ekiden.cli.terminal.forms import Forms
from ekiden.cli.terminal.prompting import Terminal
from ekiden.cli.terminal.screen import Screen, harmless
from ekiden.errors import Mistyped, UsageError


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("7", {"type": "string"}, "7"),
        ("7", {"type": "integer"}, 7),
        ("7.0", {"type": "integer"}, 7),
        ("-7", {"type": "number"}, -7),
        ("1e3", {"type": "number"}, 1000.0),
        ("on", {"type": "boolean"}, True),
        ("0", {"type": "boolean"}, False),
        ("NO", {"type": "boolean"}, False),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("7", {"type": ["integer", "string"]}, 7),
        ("seven", {"type": ["integer", "string"]}, "seven"),
        ("1", {"type": ["integer", "boolean"]}, 1),
        ("a", {"type": "array", "items": {"type": "string"}}, ["a"]),
        ("7", {"type": "array", "items": {"type": "integer"}}, [7]),
        ('["a", 1]', {"type": "array"}, ["a", 1]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("7", {}, 7),
        ("seven", {}, "seven"),
        ("7", True, 7),
        ("a", {"enum": ["a", "b"]}, "a"),
        ("y", {"type": "boolean"}, True),
        ("N", {"type": "boolean"}, False),
        ("7", {"$ref": "#/$defs/Count"}, 7),
        ("7", {"$ref": "#/$defs/Loop"}, 7),
    ],
)
def test_a_word_is_typed_by_its_schema(text: str, schema: Any, value: Any) -> None:
    root = {"$defs": {"Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}}}
    read = typed(text, schema, root)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "schema", "said"),
    [
        ("x", {"type": "integer"}, "must be a whole number, not 'x'"),
        ("1.5", {"type": "integer"}, "must be a whole number, not '1.5'"),
        ("NaN", {"type": "number"}, "must be a number, not 'NaN'"),
        ("maybe", {"type": "boolean"}, "must be yes or no (true or false), not 'maybe'"),
        ("{", {"type": "object"}, "must be a JSON object, not '{'"),
    ],
)
def test_a_word_that_cannot_be_typed_is_told(text: str, schema: Any, said: str) -> None:
    with pytest.raises(Mistyped) as caught:
        typed(text, schema)
    assert str(caught.value) == said


def test_pairs_are_split_at_the_first_sign() -> None:
    assert split_pair("a=b=c") == ("a", "b=c", False)
    assert split_pair('a:={"b": "="}') == ("a", '{"b": "="}', True)
    for wrong in ("a", "=a", ":=a"):
        with pytest.raises(UsageError):
            split_pair(wrong)


def test_an_unknown_argument_is_named_where_the_schema_forbids_it() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    with pytest.raises(UsageError, match="no argument 'b'; it has a"):
        parse_arguments(["b=1"], schema)
    assert parse_arguments(["b=1"], {"properties": {}}) == {"b": 1}


def test_arguments_that_are_missing_or_given_twice_are_named() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    with pytest.raises(UsageError, match="the tool needs a="):
        parse_arguments([], schema)
    with pytest.raises(UsageError, match="argument 'a' is given twice"):
        parse_arguments(["a=1", "a=2"], schema)


def test_titles_of_choices_are_found_however_they_are_written() -> None:
    titled = [{"const": "a", "title": "The A"}, {"const": "b", "title": "The B"}]
    expected = [("a", "The A"), ("b", "The B")]
    schemas: list[dict[str, Any]] = [
        {"type": "string", "oneOf": titled},
        {"type": "string", "enum": ["a", "b"], "enumNames": ["The A", "The B"]},
        {"type": "array", "items": {"anyOf": titled}},
    ]
    for schema in schemas:
        assert Field("x", schema, required=True).choices == expected
    assert Field("x", {"type": "string", "enum": ["a"]}, required=True).choices == [("a", "a")]


def test_a_default_that_breaks_the_form_is_not_suggested() -> None:
    assert Field("x", {"type": "integer", "maximum": 3, "default": 9}, required=True).default is None
    assert Field("x", {"type": "integer", "maximum": 3, "default": 2}, required=True).default == 2


def test_a_pattern_that_is_none_leaves_the_check_to_the_server() -> None:
    assert Field("x", {"type": "string", "pattern": "("}, required=True).problem("anything") is None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": 5},
        {"type": "string", "enum": 5, "enumNames": 5},
        {"type": "array", "items": 5},
        {"type": "array", "items": {"anyOf": [5, {"const": None}]}},
        {"type": "string", "format": ["email"]},
        {"$ref": "https://evil.example/schema"},
        {"title": 5, "description": ["x"], "default": {"a": 1}},
    ],
)
def test_a_field_that_makes_no_sense_still_has_a_label(schema: dict[str, Any]) -> None:
    field = Field("x", schema, required=True)
    assert field.label
    assert field.kind in ("text", "choices")
    assert field.default in (None, {"a": 1})


def test_text_cannot_move_the_cursor_or_turn_the_writing_around() -> None:
    assert harmless("a\x1b[2Jb\x07\r\nc\td\u202ee\x9b1m") == "a[2Jb\nc\tde1m"


# Answers


def form(message: str, **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


SURE = form("Is that all right?", value={"type": "boolean"})
PAGE = {"method": "elicitation/create", "params": {"mode": "url", "message": "Log in.", "url": "https://x"}}
TRIP = form("A trip?", seats={"type": "integer"}, action={"type": "string"})
IDEA = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "One sight?"}}]},
}
YES = {"action": "accept", "content": {"value": True}}


@pytest.mark.parametrize(
    ("answer", "request_", "response"),
    [
        ("key=yes", SURE, YES),
        ("all right=true", SURE, YES),
        ("Is that all right?=1", SURE, YES),
        ("key=@decline", SURE, {"action": "decline"}),
        ("key=@cancel", SURE, {"action": "cancel"}),
        ('key:={"action": "accept", "content": {"value": true}}', SURE, YES),
        ('key={"value": true}', SURE, YES),
        ("key=@accept", PAGE, {"action": "accept"}),
        ("key=no", PAGE, {"action": "decline"}),
        (
            'key={"seats": 2, "action": "go"}',
            TRIP,
            {"action": "accept", "content": {"seats": 2, "action": "go"}},
        ),
        ("roots=file:///home", {"method": "roots/list"}, {"roots": [{"uri": "file:///home"}]}),
        ("other=yes", SURE, None),
    ],
)
def test_an_answer_is_found_and_spelled_out(answer: str, request_: Any, response: Any) -> None:
    assert read_answers(None, [answer]).respond("key", request_) == response


def test_a_text_is_what_the_model_wrote() -> None:
    response = read_answers(None, ["sight=the deer"]).respond("key", IDEA)
    assert response is not None
    assert (response["role"], response["content"]) == ("assistant", {"type": "text", "text": "the deer"})


@pytest.mark.parametrize(
    ("answers", "request_", "said"),
    [
        (["key=maybe"], SURE, "must be yes or no (true or false), not 'maybe'"),
        (["key=2"], TRIP, "the form has the fields seats, action: give JSON"),
        (['key={"seats": 2}'], TRIP, "action is missing"),
        (
            ['key={"seats": 2, "action": "go", "seat": 1}'],
            TRIP,
            "the form has no field 'seat'; it has seats, action",
        ),
        (["key:=nonsense"], SURE, "--answer 'key' is not JSON: 'nonsense'"),
        (["all=yes", "right=no"], SURE, "several answers fit 'Is that all right?': 'all', 'right'"),
    ],
)
def test_an_answer_that_cannot_be_used_is_told(answers: list[str], request_: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        read_answers(None, answers).respond("key", request_)


def test_a_file_of_answers_must_hold_an_object(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    for text in ("[]", "{", ""):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"--answers .*answers\.json"):
            read_answers(file, [])


async def test_what_is_no_web_page_is_declined_before_the_user_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = await Forms(Screen(), Terminal()).visit("shop", {"message": "Look", "url": "file:///etc/passwd"})
    assert answer == {"action": "decline"}
    assert "That is declined: it is not a web page but file:" in capsys.readouterr().err


def test_what_is_missing_is_named_with_its_choices() -> None:
    properties = {
        "name": {"type": "string"},
        "email": {"type": "string", "format": "email"},
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
        },
        "extras": {"type": "array", "items": {"type": "string", "enum": ["ribbon", "card"]}},
        "day": {"type": "string", "enum": [str(day) for day in range(1, 32)]},
    }
    schema = {"type": "object", "properties": properties, "required": ["name", "email", "size", "day"]}
    request = {"method": "elicitation/create", "params": {"message": "What?", "requestedSchema": schema}}
    assert _described("order", request) == (
        "'What?' (key 'order'; name: string; email: email; size: one of s, l; "
        "extras (optional): some of ribbon, card; day: one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...)"
    )
