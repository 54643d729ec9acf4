"""The blocks of code of a page, also those that are indented because they stand in a tab."""

import re
from typing import Final

BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(\S+)(?: title=\"([^\"]+)\")?\n(.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Of each block its language, its title (or nothing) and its code."""
    return [
        (language, title, "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True)))
        for indent, language, title, code in BLOCK.findall(text)
    ]
