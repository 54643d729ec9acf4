"""Words of the command line that are not UTF-8, such as an old name of a file."""

import os

import pytest

from tests.cli.driving import SHOP, ekiden

WORD = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "command",
    [
        [WORD],
        ["call", SHOP, WORD],
        ["call", WORD, "typed"],
        ["call", SHOP, "typed", f"text={WORD}"],
        ["call", SHOP, "typed", f"{WORD}=1"],
        ["call", SHOP, "typed", "--answer", f"k={WORD}"],
        ["call", SHOP, "typed", "--root", WORD],
        ["call", "http://127.0.0.1:1/mcp", "typed", "--header", f"A: {WORD}"],
        ["read", SHOP, WORD],
        ["prompt", SHOP, "recommend", f"city={WORD}"],
        ["tools", WORD],
        ["tasks", SHOP, "get", WORD],
        ["tasks", "--store", f"sqlite:///{WORD}/x", "list"],
        ["run", SHOP, "--host", WORD],
        ["run", SHOP, "--allow-host", WORD],
        ["run", WORD],
        ["token", WORD],
    ],
)
def test_they_are_refused_in_one_line(command: list[str]) -> None:
    done = ekiden(*command)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("ekiden: the argument b'")
    assert line.endswith("is not UTF-8")
