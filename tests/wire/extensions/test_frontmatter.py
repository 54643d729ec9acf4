"""The frontmatter of a `SKILL.md`, which must mean the same to both sides."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden.signals import FrontmatterError
from ekiden.wire.extensions.frontmatter import read_skill_text, write_skill_text

VALUES = {
    "1": 1,
    "-12": -12,
    "017": 17,
    "0x1F": 31,
    "0o17": 15,
    "1.50": 1.5,
    "1e3": 1000.0,
    ".5": 0.5,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    "": None,
    "no": "no",
    "on": "on",
    "y": "y",
    "2026-07-28": "2026-07-28",
    "12:30:45": "12:30:45",
    "1_000": "1_000",
    '"1"': "1",
    "[1, a, null]": [1, "a", None],
    "{a: {b: c}}": {"a": {"b": "c"}},
    "|\n  two\n  lines": "two\nlines\n",
    "Extract, fill: no": None,
}


@pytest.mark.parametrize(("written", "meant"), list(VALUES.items())[:-1])
def test_a_value_means_what_the_core_schema_of_yaml_1_2_says(written: str, meant: Any) -> None:
    read = read_skill_text(f"---\nkey: {written}\n---\nbody\n")
    assert read.frontmatter == {"key": meant}
    assert type(read.frontmatter["key"]) is type(meant)
    assert read.instructions == "body\n"


@pytest.mark.parametrize("begin", ["---\n", "\ufeff---\n", "---  \r\n"])
@pytest.mark.parametrize("end", ["---\n", "---", "--- \r\n"])
def test_lines_of_dashes_surround_it(begin: str, end: str) -> None:
    assert read_skill_text(f"{begin}a: 1\n{end}").frontmatter == {"a": 1}


def test_a_merge_key_is_an_ordinary_key() -> None:
    assert read_skill_text("---\n<<: {a: 1}\nb: 2\n---\n").frontmatter == {"<<": {"a": 1}, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# no frontmatter",
        "---\na: 1\n",
        "\n---\na: 1\n---\n",
        "---\n- 1\n---\n",
        "---\n---\n",
        "---\ntext\n---\n",
        "---\n1: 2\n---\n",
        "---\na: [\n---\n",
        "---\na: &x 1\nb: *x\n---\n",
        "---\na: !!python/object/apply:os.system [ls]\n---\n",
        "---\na: !!timestamp 2026-07-28\n---\n",
        "---\na: .inf\n---\n",
        "---\na: .nan\n---\n",
        "---\n? [a]\n: b\n---\n",
        "---\na: " + "[" * 5000 + "\n---\n",
        "---\na: " + "x" * 70_000 + "\n---\n",
        "---\na: " + "9" * 5000 + "\n---\n",
    ],
)
def test_what_is_not_a_frontmatter_is_refused(text: str) -> None:
    with pytest.raises(FrontmatterError):
        read_skill_text(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10), json_values, max_size=4
    ),
    st.text(),
)
def test_what_we_write_is_read_as_it_was(fields: dict[str, Any], instructions: str) -> None:
    if not fields:
        return
    text = write_skill_text(fields, instructions.replace("\x00", ""))
    read = read_skill_text(text).frontmatter
    assert _equal(read, fields)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)
