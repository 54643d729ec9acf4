"""How much work a regular expression of a stranger can make, read from its text alone.

Strangers' patterns run on an engine without backtracking. Its work is at most the length of the text times
the places of the pattern, once repetitions are written out: `[ab]{3}` has three places. Places are counted
too high rather than too low where the text of a pattern can be read in two ways.
"""

import re
from typing import Final

__all__ = ["places"]

_TOKEN: Final = re.compile(
    r"""
      (?P<atom> \\[pPux]\{[^{}]*\} | \\. | \[\^?(?:\\.|[^\[\]\\])+\] )  # An escape or a class.
    | (?P<open> \((?:\?:|\?P?<[A-Za-z]\w*>)? (?!\?) )
    | (?P<close> \) )
    | \{(?P<least>\d+)(?:,(?P<most>\d*))?\}
    | (?P<unclear> \[ | \(\? )  # A class within a class, a flag: what is a group may be something else.
    | (?P<letter> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_BOUND: Final = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")
_LARGE_CLASS: Final = 40
"""Classes such as `\\p{L}` have thousands of letters: the engine needs that many places for one."""
_BEYOND: Final = 10**9
"""More than any limit."""


def places(pattern: str) -> int:
    """The places of a pattern, at most."""
    levels = [[0, 0]]  # Of each open group: the places before its last item, and those of that item.
    for token in _TOKEN.finditer(pattern):
        if token["unclear"]:
            return _at_worst(pattern)
        level = levels[-1]
        if token["open"]:
            levels.append([0, 0])
        elif token["close"] and len(levels) > 1:
            levels.pop()
            _put(levels[-1], 1 + sum(level))
        elif token["least"]:
            level[1] = min(max(1, level[1]) * _copies(token["least"], token["most"]), _BEYOND)
        else:
            _put(level, _LARGE_CLASS if _is_large(token["atom"]) else 1)
    return min(1 + sum(map(sum, levels)), _BEYOND)


def _put(level: list[int], item: int) -> None:
    level[0], level[1] = min(level[0] + level[1], _BEYOND), item


def _is_large(atom: str | None) -> bool:
    return atom is not None and ("\\p" in atom or "\\P" in atom)


def _copies(least: str, most: str | None) -> int:
    """How often an item is written out."""
    return max(1, _number(most) if most else _number(least) + 1)


def _number(digits: str) -> int:
    return int(digits) if len(digits) < 10 else _BEYOND


def _at_worst(pattern: str) -> int:
    """As if every repetition was around all of the pattern."""
    total = len(pattern) * (_LARGE_CLASS if _is_large(pattern) else 1)
    for least, most in _BOUND.findall(pattern):
        total = min(total * _copies(least, most), _BEYOND)
    return 1 + total
