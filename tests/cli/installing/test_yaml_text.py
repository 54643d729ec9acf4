"""One entry of a YAML text is changed, and every other line stays."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ekiden.cli.installing.yaml_text import drop, has, put
from ekiden.errors import UsageError

SETTINGS = """# Mine.
GOOSE_PROVIDER: openai  # the cheap one
note: |
  extensions:
    not: these
extensions:
  developer:
    enabled: true
    args:
    - --fast
    - 'it''s'
    description: >
      builtin

      # no comment
  # The one for notes.
  "my notes":
    enabled: false
    cmd: notes

# The end.
GOOSE_MODEL: gpt
"""
PATH = ["extensions", "shop"]
ENTRY: dict[str, Any] = {
    "enabled": True,
    "cmd": "/bin/shop",
    "args": ["-m", "a: b", "yes"],
    "envs": {},
    "timeout": 300,
}


def test_an_entry_comes_last_and_all_else_stays() -> None:
    changed = put(SETTINGS, PATH, ENTRY)
    before, after = yaml.safe_load(SETTINGS), yaml.safe_load(changed)
    assert after.pop("extensions") == {**before.pop("extensions"), "shop": ENTRY}
    assert after == before
    head, tail = SETTINGS.split("    cmd: notes\n")
    assert changed.startswith(f"{head}    cmd: notes\n  shop:\n")
    assert changed.endswith(tail)


def test_what_was_put_and_dropped_leaves_the_text_as_it_was() -> None:
    for text in (
        SETTINGS,
        SETTINGS.replace("\n", "\r\n"),
        "a: 1\nextensions: {} # none yet\nb: 2\n",
        "extensions:\n    deep:\n        enabled: true\n",
        "---\nextensions: {}\n",
    ):
        changed = put(text, PATH, ENTRY)
        assert has(changed, PATH)
        assert yaml.safe_load(changed)["extensions"]["shop"] == ENTRY
        assert drop(changed, PATH) == text


def test_a_file_without_extensions_gets_them() -> None:
    for text in (
        "",
        "a: 1",
        "a: 1\n",
        "# only a comment\n",
        "a:\n- 1\n- 2\n",
        "extensions:\na: 1\n",
        "extensions: null\n",
    ):
        assert yaml.safe_load(put(text, PATH, ENTRY)) == {
            **(yaml.safe_load(text) or {}),
            "extensions": {"shop": ENTRY},
        }


def test_a_part_of_an_entry_is_changed() -> None:
    changed = put(put(SETTINGS, PATH, ENTRY), [*PATH, "args"], ["x"])
    assert yaml.safe_load(changed)["extensions"]["shop"] == {**ENTRY, "args": ["x"]}
    assert not has(drop(changed, [*PATH, "args"]), [*PATH, "args"])
    notes = put(SETTINGS, ["extensions", "my notes", "enabled"], True)
    assert notes == SETTINGS.replace("enabled: false", "enabled: true")
    assert "# The one for notes." in drop(SETTINGS, ["extensions", "my notes"])
    assert drop(SETTINGS, ["extensions", "unknown"]) == SETTINGS == drop(SETTINGS, ["unknown", "x"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("extensions: {a: {}}\n", "line 1 has its value behind the colon"),
        ("extensions: &all\n  a: 1\n", "line 1 has its value behind the colon"),
        ("extensions:\n\ta: 1\n", "line 2 begins with a tab"),
        ("a: 1\n---\nb: 2\n", "line 2 begins a second document"),
        ("extensions:\n  a: 1\nextensions:\n  b: 1\n", "'extensions' stands twice"),
        ("[1, 2]\n", "line 1 cannot be read"),
        ("extensions:\n  a: [x,\n  y]\n", "line 3 cannot be read"),
    ],
)
def test_what_is_not_in_blocks_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        put(text, PATH, ENTRY)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.none() | st.booleans(), max_size=4))
def test_any_text_is_read_back_by_yaml(values: dict[str, Any]) -> None:
    changed = put(SETTINGS, PATH, {"envs": values, "args": list(values)})
    assert yaml.safe_load(changed)["extensions"]["shop"] == {"envs": values, "args": list(values)}
    assert drop(changed, PATH) == SETTINGS
