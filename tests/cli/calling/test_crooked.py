"""Servers that send what no honest server sends: the command neither hangs nor shows a traceback."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.driving import FOLDER, ekiden, person

SIZE = 40
DOUBLED: dict[str, Any] = {
    f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(SIZE)
} | {f"d{SIZE}": {"type": "string"}}
"""A few lines that mean 2 ** 40 checks."""


def crooked(kind: str, given: object) -> str:
    return shlex.join([sys.executable, str(FOLDER / "servers" / "crooked.py"), kind, json.dumps(given)])


def test_a_form_that_would_take_years_to_check_is_given_up() -> None:
    field = {"$defs": DOUBLED, "$ref": "#/$defs/d0"}
    target = crooked("form", {"type": "object", "properties": {"a": field}})
    done = ekiden("call", target, "deed", "--answer", 'k={"a": "x"}')
    assert done.returncode == 2
    assert "too many checks" in done.stderr


@pytest.mark.parametrize(
    "pattern", ["((?=(a*)*(a*)*(a*)*x)|.)*y", "1[01]{9000}[23]", "(((0{99}){99}){99}){99}"]
)
def test_a_pattern_that_would_take_for_ever_does_not_hold_up_an_answer(pattern: str) -> None:
    target = crooked("form", {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
    text = "a" * 50_000 if "a" in pattern else "01" * 25_000
    done = ekiden("call", target, "deed", "--answer", f"k={text}", "--timeout", "20")
    if done.returncode == 0:  # The pattern is not used: the server checks the answer anyway.
        assert json.loads(done.stdout) == {"k": {"action": "accept", "content": {"a": text}}}
    else:
        assert "too many checks" in done.stderr


def test_a_form_with_more_fields_than_anybody_fills_in_is_refused() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(201)}
    done = ekiden("call", crooked("form", {"type": "object", "properties": fields}), "deed")
    assert done.returncode == 1
    assert "has 201 fields" in done.stderr


@pytest.mark.parametrize("properties", [None, 5, ["action"]])
def test_a_form_whose_properties_are_not_an_object_can_be_declined(properties: Any) -> None:
    target = crooked("form", {"type": "object", "properties": properties})
    done = ekiden("call", target, "deed", "--answer", 'k:={"action": "decline"}')
    assert (done.returncode, json.loads(done.stdout)) == (0, {"k": {"action": "decline"}}), done.stderr


@pytest.mark.parametrize("uri", ["http://[::1/town", "http://\u2100/"])
def test_a_resource_is_saved_though_its_uri_cannot_be_read(uri: str, tmp_path: Path) -> None:
    done = ekiden("read", crooked("read", uri), "x://y", "--save-to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "resource-1.bin").read_bytes() == b"hi"


@pytest.mark.parametrize(("done", "total"), [(1e308, 1e308), (1e308, 1e-308), (-1, -3), (1, 0)])
def test_progress_that_cannot_be_drawn_does_no_harm(done: float, total: float) -> None:
    target = crooked("progress", {"progress": done, "total": total})
    with person("call", target, "deed") as user:
        assert user.ends() == 0
        assert "Traceback" not in user.screen
        assert "null" in user.screen
