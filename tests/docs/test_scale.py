"""The page about scale shows what the program prints."""

import re
import shlex
from pathlib import Path

import pytest
from bench.capacity import answer

PAGE = Path(__file__).parent.parent.parent / "docs" / "why" / "scale.md"
COMMAND = "$ python -m bench.capacity "
BLOCKS = [
    block for block in re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    if block.startswith(COMMAND)
]  # fmt: skip


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_of_the_page_is_what_the_program_prints(block: str) -> None:
    command, _, printed = block.replace("\\\n", "").partition("\n")
    assert printed == answer(shlex.split(command.removeprefix(COMMAND))) + "\n"
