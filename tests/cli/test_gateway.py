"""`ekiden gateway` with files that it cannot use."""

from pathlib import Path

import pytest

from .driving import ekiden


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("mcp.json", "{", "mcp.json is not JSON: Expecting property name enclosed in double quotes: line 1"),
        ("mcp.json", '{"mcpServers": {"a b": {"command": "x"}}}', "'a b': cannot be a prefix: use a letter"),
        (
            "mcp.json",
            '{"mcpServers": {"a": {"command": "x", "why": 1}}}',
            "'why' is not known for a `command`",
        ),
        ("server.py", "", "must be a .json file; a Python file with a Server is for `ekiden run`"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    done = ekiden("gateway", str(file))
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = ekiden("gateway", str(tmp_path / "nowhere.json"), "--stdio")
    assert done.returncode == 2
    assert "nowhere.json cannot be read: No such file or directory" in done.stderr
