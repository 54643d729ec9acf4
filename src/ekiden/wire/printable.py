"""Words of the other side as people see them: without what a terminal, a log or a page would obey or hide."""

import re
from typing import Final

__all__ = ["UNSEEN", "harmless", "one_line", "printable"]

UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1, except tab and line feed.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # These change the direction of writing.
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U000e0000-\U000e0fff]"  # Nothing is seen of these, and two names look like one.
)
_BREAKS: Final = re.compile("\r\n|[\n\x0b\x0c\r\x85\u2028\u2029]")
_LONGEST_LINE: Final = 1000
"""Letters of what is shown in one line."""
_MOST_SHOWN: Final = 200
"""Characters of a client's words that a log shows."""


def printable(text: str) -> str:
    """A client's words on one line, without control characters, shortened."""
    return "".join(char if char.isprintable() else "?" for char in text[:_MOST_SHOWN])


def harmless(text: object) -> str:
    """Text of the other side without what a terminal would obey, or what nobody would see."""
    return UNSEEN.sub("", _BREAKS.sub("\n", str(text)))


def one_line(text: object) -> str:
    """The same, in one line that is not too long: names, titles, types, addresses."""
    shown = harmless(_BREAKS.sub(" ", str(text)[: 2 * _LONGEST_LINE])).replace("\t", " ")
    return shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]}..."
