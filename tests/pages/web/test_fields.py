"""Forms of JSON schemas: which field each schema becomes, what a posted form means, what is wrong with it."""

import time
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from ekiden.pages.web.fields import fields_of, leaves
from ekiden.pages.web.filling import Form, asked_schema


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def optional(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def posted(**values: str | list[str]) -> dict[str, list[str]]:
    return {f"/{name}": [value] if isinstance(value, str) else value for name, value in values.items()}


def problems(form: Form, **values: str | list[str]) -> dict[str, str]:
    return form.read(posted(**values)).view.errors


def test_each_kind_of_schema_becomes_the_field_that_suits_it() -> None:
    found = {
        field.path[-1]: (field.kind, field.input)
        for field in fields_of(
            schema(
                name={"type": "string"},
                essay={"type": "string", "maxLength": 5000},
                mail={"type": "string", "format": "email"},
                page={"type": "string", "format": "uri"},
                day={"type": "string", "format": "date"},
                moment={"type": "string", "format": "date-time"},
                secret={"type": "string", "format": "password"},
                other={"type": "string", "format": "made-up"},
                count={"type": "integer"},
                price={"type": "number"},
                sure={"type": "boolean"},
                size={"enum": ["S", "M"]},
                only={"const": 3},
                sizes={"type": "array", "items": {"enum": ["S", "M"]}},
                tags={"type": "array", "items": {"type": "string"}},
                union={"anyOf": [{"type": "string"}, {"type": "integer"}]},
                anything={},
                mapping={"type": "object", "additionalProperties": {"type": "string"}},
                place={"type": "object", "properties": {"city": {"type": "string"}}},
            )
        )
    }
    assert found == {
        "name": ("text", "text"),
        "essay": ("long", "text"),
        "mail": ("text", "email"),
        "page": ("text", "url"),
        "day": ("text", "date"),
        "moment": ("text", "datetime-local"),
        "secret": ("text", "password"),
        "other": ("text", "text"),
        "count": ("integer", "number"),
        "price": ("number", "number"),
        "sure": ("boolean", "text"),
        "size": ("choice", "text"),
        "only": ("choice", "text"),
        "sizes": ("choices", "text"),
        "tags": ("json", "text"),
        "union": ("json", "text"),
        "anything": ("json", "text"),
        "mapping": ("json", "text"),
        "place": ("group", "text"),
    }


def test_a_field_says_what_the_schema_says_of_it() -> None:
    given = {
        "type": "integer",
        "title": "Pieces",
        "description": "How many?",
        "minimum": 1,
        "exclusiveMaximum": 10,
    }
    (field,) = fields_of(optional(count={**given, "default": 2}))
    assert (field.label, field.description, field.required, field.default) == (
        "Pieces",
        "How many?",
        False,
        2,
    )
    assert (field.minimum, field.maximum) == (1, 9)
    assert Form(optional(count={**given, "default": 2})).blank().text(field) == "2"


def test_choices_have_their_titles_in_every_spelling() -> None:
    titled = [{"const": "s", "title": "Small"}, {"const": "m", "title": "Medium"}]
    found = fields_of(
        schema(
            one={"type": "string", "oneOf": titled},
            many={"type": "array", "items": {"anyOf": titled}},
            old={"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
            numbers={"enum": [1, "1", None]},
        )
    )
    assert [[choice.title for choice in field.choices] for field in found] == [
        ["Small", "Medium"],
        ["Small", "Medium"],
        ["Small", "Medium"],
        ["1", "1", "null"],
    ]
    assert [choice.token for choice in found[3].choices] == ["1", '"1"', "null"]


def test_a_posted_form_becomes_values_of_their_types() -> None:
    form = Form(
        schema(
            name={"type": "string"},
            count={"type": "integer"},
            price={"type": "number"},
            sure={"type": "boolean"},
            size={"enum": ["S", "M"]},
            sizes={"type": "array", "items": {"enum": ["S", "M", "L"]}},
            tags={"type": "array", "items": {"type": "string"}},
            moment={"type": "string", "format": "date-time"},
            place={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        )
    )
    filled = form.read(
        {
            "/name": ["two\r\nlines "],
            "/count": ["3"],
            "/price": [".5"],
            "/sure": ["false"],
            "/size": ['"M"'],
            "/sizes": ['"S"', '"L"'],
            "/tags": ['["a", "b"]'],
            "/moment": ["2026-07-28T09:30"],
            "/place/city": ["Kyoto"],
            "csrf": ["not a field"],
        }
    )
    assert filled.fits
    assert filled.values == {
        "name": "two\nlines ",
        "count": 3,
        "price": 0.5,
        "sure": False,
        "size": "M",
        "sizes": ["S", "L"],
        "tags": ["a", "b"],
        "moment": "2026-07-28T09:30:00Z",
        "place": {"city": "Kyoto"},
    }


def test_what_is_left_empty_is_left_out_or_null_or_missing() -> None:
    nullable: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    given = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": nullable,
            "c": nullable,
            "d": {"type": ["string", "null"]},
        },
        "required": ["a", "c", "d"],
    }
    filled = Form(given).read(posted(a="x", b="", c="", d=""))
    assert (filled.values, filled.fits) == ({"a": "x", "c": None, "d": None}, True)
    missing = Form(given).read({})
    assert (missing.fits, missing.view.errors) == (False, {"/a": "This is required."})


def test_an_optional_group_is_sent_once_something_in_it_is_filled_in() -> None:
    place = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "country": {"type": "string", "default": "JP"}},
        "required": ["city"],
    }
    form = Form(optional(place=place))
    assert form.read({"/place/city": [""], "/place/country": ["JP"]}).values == {}
    assert form.read({"/place/city": ["Nara"], "/place/country": ["JP"]}).values == {
        "place": {"city": "Nara", "country": "JP"}
    }
    begun = form.read({"/place/city": [""], "/place/country": ["FR"]})
    assert begun.view.errors == {"/place/city": "This is required."}
    assert [field.forced for field in leaves(form.fields)] == [False, False], "the browser cannot know"


def test_models_of_pydantic_become_groups_with_titles_of_their_own() -> None:
    class Place(BaseModel):
        """Where it goes."""

        city: Annotated[str, Field(title="Town")]
        kind: Literal["home", "work"] = "home"
        floor: Annotated[int, Field(ge=0)] | None = None

    class Order(BaseModel):
        place: Place
        again: Place | None = None
        rows: list[Place] = []

    form = Form(TypeAdapter(Order).json_schema())
    assert [(field.name, field.kind, field.label) for field in form.fields] == [
        ("/place", "group", "Place"),
        ("/again", "group", "Place"),
        ("/rows", "json", "Rows"),
    ]
    assert [field.name for field in leaves(form.fields)] == [
        *(
            "/place/city",
            "/place/kind",
            "/place/floor",
            "/again/city",
            "/again/kind",
            "/again/floor",
            "/rows",
        ),
    ]
    given = {"/place/city": ["Kobe"], "/place/kind": ['"work"'], "/again/kind": ['"home"'], "/rows": ["[]"]}
    filled = form.read(given)
    assert (filled.values, filled.fits) == ({"place": {"city": "Kobe", "kind": "work"}, "rows": []}, True)
    wrong = form.read({**given, "/place/floor": ["-1"]})
    assert wrong.view.errors == {"/place/floor": "This must be 0 or more."}


def test_what_is_wrong_is_said_beside_the_field_in_plain_words() -> None:
    form = Form(
        schema(
            count={"type": "integer", "minimum": 1},
            price={"type": "number", "multipleOf": 0.5},
            name={"type": "string", "minLength": 3, "maxLength": 5},
            code={"type": "string", "pattern": "^[A-Z]+$"},
            mail={"type": "string", "format": "email"},
            day={"type": "string", "format": "date"},
            sizes={"type": "array", "items": {"enum": ["S", "M"]}, "minItems": 1},
            tags={"type": "array", "items": {"type": "string"}},
        )
    )
    typed: dict[str, Any] = {"count": "0", "price": "0.7", "name": "ab", "code": "abc"}
    wrong = problems(form, **typed, mail="nobody", day="tomorrow", sizes=[], tags="[1]")
    assert wrong == {
        "/count": "This must be 1 or more.",
        "/price": "This must be a multiple of 0.5.",
        "/name": "This must have at least 3 letters.",
        "/code": "This must match ^[A-Z]+$.",
        "/mail": "This must be an e-mail address, such as name@example.com.",
        "/day": "This must be a date, such as 2026-07-28.",
        "/sizes": "At least 1 are needed.",
        "/tags": 'This does not fit: 0: 1 is not of type "string"',
    }


@pytest.mark.parametrize(
    ("kind", "typed", "said"),
    [
        ("integer", "1.5", "This must be a whole number."),
        ("integer", "one", "This must be a whole number."),
        ("number", "NaN", "This must be a number."),
        ("number", "1e999", "This must be a number."),
        ("number", "9" * 301, "This must be a number."),
        ("array", "[1,", "This is not JSON: Input data was truncated."),
    ],
)
def test_what_cannot_be_read_is_said(kind: str, typed: str, said: str) -> None:
    assert problems(Form(schema(it={"type": kind})), it=typed) == {"/it": said}


def test_a_choice_that_was_not_offered_is_refused() -> None:
    form = Form(schema(size={"enum": ["S"]}))
    assert problems(form, size='"XL"') == {"/size": "Choose one of the values that are offered."}


def test_a_form_that_is_shown_again_holds_what_was_typed() -> None:
    form = Form(schema(count={"type": "integer"}, sizes={"type": "array", "items": {"enum": ["S", "M"]}}))
    view = form.read(posted(count="many", sizes=['"M"'])).view
    assert [view.typed["/count"], view.typed["/sizes"]] == [["many"], ['"M"']]
    assert [(field.label, said) for field, said in view.faulty] == [("count", "This must be a whole number.")]


def test_a_form_can_be_shown_with_earlier_values() -> None:
    moment = {"type": "string", "format": "date-time"}
    form = Form(
        schema(count={"type": "integer"}, sure={"type": "boolean"}, moment=moment, tags={"type": "array"})
    )
    view = form.holding({"count": 3, "sure": True, "moment": "2026-07-28T09:00:00+02:00", "tags": [1]})
    assert view.typed == {
        "/count": ["3"],
        "/sure": ["true"],
        "/moment": ["2026-07-28T07:00:00"],
        "/tags": ["[\n  1\n]"],
    }


def test_a_default_of_another_type_is_not_shown() -> None:
    form = Form(
        optional(a={"type": "integer", "default": "three"}, b={"type": "string", "default": {"x": 1}})
    )
    assert form.blank().typed == {"/a": [], "/b": []}


def test_names_of_controls_cannot_be_confused_with_each_other() -> None:
    group = {"type": "object", "properties": {"b": {"type": "string"}}}
    found = fields_of(schema(**{"a/b": {"type": "string"}, "a": group, "csrf": {"type": "string"}, "": {}}))
    names = [field.name for field in leaves(found)]
    assert names == ["/a~1b", "/a/b", "/csrf", "/"]
    assert len({field.id for field in leaves(found)}) == 4
    assert all(field.id.replace("-", "").isalnum() for field in leaves(found))


def test_a_schema_that_is_not_one_of_an_object_with_properties_is_typed_as_json() -> None:
    (field,) = fields_of({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    assert (field.kind, field.name) == ("json", ".")
    form = Form({"type": "object", "additionalProperties": {"type": "integer"}})
    assert form.read({".": ['{"a": 1}']}).values == {"a": 1}
    assert form.read({".": ['{"a": "x"}']}).view.errors == {
        ".": 'This does not fit: a: "x" is not of type "integer"'
    }
    assert form.read({}).view.errors == {".": "This is required."}


@pytest.mark.parametrize(
    "nothing", [{}, {"type": "object"}, {"type": "object", "properties": {}}, None, [], "x"]
)
def test_a_schema_without_properties_has_no_fields(nothing: Any) -> None:
    assert fields_of(nothing) == ()
    assert Form(nothing).read({}).values == {}


# Hostile schemas


def test_a_schema_with_too_many_fields_is_one_field_for_json() -> None:
    (field,) = fields_of(schema(**{f"f{number}": {"type": "string"} for number in range(100_000)}))
    assert field.kind == "json"


def test_a_schema_that_contains_itself_ends() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/node"}, "again": {"$ref": "#/$defs/node"}},
    }
    found = fields_of({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert {field.kind for field in leaves(found)} == {"json"}
    endless = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    (field,) = fields_of({**schema(it={"$ref": "#/$defs/a"}), **endless})
    assert field.kind == "json"


def test_a_pattern_that_needs_years_is_refused_at_once() -> None:
    form = Form(schema(it={"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}))
    began = time.monotonic()
    assert problems(form, it="a" * 50_000) == {"/it": "This must match ^(([a-z])+.)+[A-Z]([a-z])+$."}
    assert time.monotonic() - began < 5


def test_a_schema_that_cannot_be_used_leaves_the_check_to_who_gets_the_values() -> None:
    form = Form(schema(it={"type": "string", "pattern": "(?=a)b"}, far={"$ref": "https://example.com/x"}))
    filled = form.read({"/it": ["anything"], "/far": ["1"]})
    assert (filled.fits, filled.values) == (True, {"it": "anything", "far": 1})


def test_words_of_a_stranger_lose_what_would_hide_or_turn_them() -> None:
    (field,) = fields_of(schema(**{"a\u202eb": {"title": "x\u202ey\nz", "description": "d" * 10_000}}))
    assert (field.label, len(field.description)) == ("xy z", 4003)


def test_nonsense_in_a_schema_is_not_a_crash() -> None:
    nonsense: list[Any] = [None, 5, "x", [], {"type": 7}, {"type": ["null"]}, {"enum": "x"}, {"oneOf": [5]}]
    nonsense += [{"type": "integer", "minimum": "low"}, {"type": "string", "maxLength": -1}, {"$ref": 5}]
    nonsense += [{"type": "array", "items": [5]}, {"type": "object", "properties": 5}, {"anyOf": []}]
    form = Form({"properties": {f"f{at}": given for at, given in enumerate(nonsense)}, "required": 5})
    assert len(form.fields) == len(nonsense)
    assert form.read({}).values == {}


def test_all_mistakes_of_a_form_are_told_at_once() -> None:
    form = Form(
        schema(
            name={"type": "string"},
            mail={"type": "string", "format": "email"},
            seats={"type": "integer", "maximum": 9},
        )
    )
    filled = form.read({"/mail": ["nobody"], "/seats": ["12"]})
    assert filled.view.errors == {
        "/name": "This is required.",
        "/mail": "This must be an e-mail address, such as name@example.com.",
        "/seats": "This must be 9 or less.",
    }
    assert filled.view.problem is None


def test_a_question_for_one_value_has_a_label() -> None:
    (field,) = fields_of(asked_schema(schema(value={"type": "boolean"})))
    assert field.label == "Your answer"
    (titled,) = fields_of(asked_schema(schema(value={"type": "boolean", "title": "Sure?"})))
    assert titled.label == "Sure?"
    (other,) = fields_of(asked_schema(schema(name={"type": "string"})))
    assert other.label == "name"
