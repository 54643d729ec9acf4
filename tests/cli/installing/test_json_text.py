"""One value of a JSON text is changed, and every other letter stays."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden.cli.installing.json_text import drop, get, put
from ekiden.errors import UsageError

COMMENTED = """{
  // Mine, and dear to me.
  "theme": "dark", /* as it
     should be */
  "mcpServers": {
    "notes": { "command": "notes" } // The old one.
  },
  "last": [1, 2,],
}
"""


def test_a_member_comes_last_after_the_comment_of_the_one_before_it() -> None:
    assert put(COMMENTED, ["mcpServers", "shop"], {"command": "shop"}) == COMMENTED.replace(
        '"notes" } // The old one.\n',
        '"notes" }, // The old one.\n    "shop": {\n      "command": "shop"\n    }\n',
    )


def test_what_was_put_and_dropped_leaves_the_text_as_it_was() -> None:
    for text in (
        COMMENTED,
        '{"mcpServers": {"notes": {"command": "notes"}}}',
        '{"mcpServers": {"notes": 1,}}',
        '{\n\t"mcpServers": {\n\t\t"notes": 1,\n\t},\n}\n',
        COMMENTED.replace("\n", "\r\n"),
        "\ufeff" + COMMENTED,
    ):
        changed = put(text, ["mcpServers", "shop"], {"args": ["-m", "shop"]})
        assert get(changed, ["mcpServers", "shop"]) == {"args": ["-m", "shop"]}
        assert drop(changed, ["mcpServers", "shop"]) == text


def test_what_is_added_is_written_as_the_text_is() -> None:
    tabbed = put('{\n\t"a": 1\n}', ["b", "c"], [True])
    assert tabbed == '{\n\t"a": 1,\n\t"b": {\n\t\t"c": [\n\t\t\ttrue\n\t\t]\n\t}\n}'
    assert put('{"a": 1}', ["b"], {"c": 2}) == '{"a": 1, "b": {"c":2}}'
    assert "\n" not in put("{\r\n}", ["a"], {"b": 1}).replace("\r\n", "")
    assert put("", ["a"], 1) == '{\n  "a": 1\n}\n'
    assert put("{ /* none */ }", ["a"], 1) == '{ /* none */\n  "a": 1\n}'


def test_an_equal_value_changes_nothing() -> None:
    text = '{"a":   {"b": [1,2 , /* three */ 3]}}'
    assert put(text, ["a"], {"b": [1, 2, 3]}) == text


def test_the_first_the_middle_and_the_only_member_are_dropped() -> None:
    text = '{\n  "a": 1,\n  // of b\n  "b": 2,\n  "c": 3\n}\n'
    assert drop(text, ["a"]) == '{\n  // of b\n  "b": 2,\n  "c": 3\n}\n'
    assert drop(text, ["b"]) == '{\n  "a": 1,\n  // of b\n  "c": 3\n}\n'
    assert drop(text, ["c"]) == '{\n  "a": 1,\n  // of b\n  "b": 2\n}\n'
    assert drop('{\n  "a": 1\n}', ["a"]) == "{}"
    assert drop('{\n  "a": 1 // note\n}', ["a"]) == "{ // note\n}"
    assert drop(text, ["x", "y"]) == text == drop(text, ["x"])


def test_items_of_an_array_are_added_and_dropped() -> None:
    text = put('{"inputs": []}', ["inputs", 0], {"id": "a"})
    text = put(text, ["inputs", 1], {"id": "b"})
    assert get(text, ["inputs"]) == [{"id": "a"}, {"id": "b"}]
    assert get(drop(text, ["inputs", 0]), ["inputs"]) == [{"id": "b"}]
    assert get(put("{}", ["inputs", 0], 7), ["inputs"]) == [7]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": 1', "a comma or '}' is missing in line 1"),
        ('{\n"a": nan}', "a value is missing in line 2"),
        ("{a: 1}", "a name in quotation marks is missing in line 1"),
        ('{"a" 1}', "a colon is missing in line 1"),
        ("{} {}", "there is more after the end in line 1"),
        ("[]", "it is not an object in line 1"),
        ('{"a": "\n"}', "a value is missing in line 1"),
        ('{"a": ' * 200, "it is deeper than 128 levels in line 1"),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        put(text, ["mcpServers", "shop"], {})


def test_a_path_through_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="is not an object"):
        put('{"mcpServers": []}', ["mcpServers", "shop"], {})
    with pytest.raises(UsageError, match="'mcpServers' stands twice"):
        put('{"mcpServers": {}, "mcpServers": {}}', ["mcpServers", "shop"], {})


NAMES = st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4), NAMES, VALUES, st.sampled_from([None, 1, 2, "\t"]))
def test_any_document_keeps_its_other_members(
    document: dict[str, object], name: str, value: object, indent: int | str | None
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    changed = put(text, [name], value)
    assert json.loads(changed) == {**document, name: value}
    left = {key: kept for key, kept in document.items() if key != name}
    assert json.loads(drop(changed, [name])) == left
    if name not in document and document:
        assert drop(changed, [name]) == text
