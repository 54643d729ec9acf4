"""JSON texts, good and bad, made of a seed."""

import json
import random
from typing import Any

_STRINGS = ["", "a", 'quote " here', "back\\slash", "\\", '\\"', "[{,", "]}", "\u00e9\u6f22", "\0\n\t"]
_STRINGS += ["\U0001f600", "1e999"]
_NUMBERS = ["0", "-0", "1", "-1.5", "1e5", "1E-5", "1e290", "5e-324", "1.0", "0.0012345678901234567"]
_NUMBERS += ["18446744073709551615", "-9223372036854775808", "0." + "1" * 40]
_HARD_NUMBERS = ["1e400", "18446744073709551616", "1" * 40, "01", "+1", ".5", "1.", "-"]
_WRONG = ["NaN", "Infinity", "nul", "tru", "'a'", '"', '"\\x"', '"\\ud800"', '"\\u12"', "\ufeff1", "{1:2}"]
_WRONG += ["[,]", "[1,]"]


def _value(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(10)
    if depth <= 0 or kind < 4:
        pick = rng.random()
        if pick < 0.45:
            return json.dumps(rng.choice(_STRINGS), ensure_ascii=rng.random() < 0.5)
        if pick < 0.9:
            return rng.choice(_NUMBERS if rng.random() < 0.97 else _HARD_NUMBERS)
        return rng.choice(["true", "false", "null"])
    blank = rng.choice(["", " ", "\n"])
    width = rng.choice([0, 1, 2, 5, 40]) if depth < 4 else rng.choice([1, 1, 2])
    if kind < 7:
        return "[" + f",{blank}".join(_value(rng, depth - 1) for _ in range(width)) + "]"
    members = (
        f"{json.dumps(rng.choice(_STRINGS) + str(n))}:{blank}{_value(rng, depth - 1)}" for n in range(width)
    )
    return "{" + f"{blank},".join(members) + "}"


def text(seed: int) -> bytes:
    """One text."""
    rng = random.Random(seed)
    nested = rng.choice([0, 0, 0, 3, 126, 127, 128, 129, 130, 500, 3000])
    made = _value(rng, rng.choice([0, 1, 2, 3, 4]))
    for _ in range(nested):
        made = f"[{made}]" if rng.random() < 0.5 else f"{{{json.dumps(rng.choice(_STRINGS))}:{made}}}"
    if rng.random() < 0.1:
        made = f"[{made},{rng.choice(_WRONG)}]"
    data = made.encode("utf-8", "surrogatepass")
    if rng.random() < 0.2 and data:
        at = rng.randrange(len(data))
        junk = bytes(rng.choice(b'[]{},:"\\0-e.\xff ') for _ in range(rng.randrange(1, 4)))
        data = data[:at] + junk + data[at + rng.randrange(3) :]
    return data + b" " * rng.choice([0, 0, 700])


def count(value: Any) -> int:
    """Values as they are counted: commas and opening brackets, and one."""
    if not isinstance(value, (dict, list)):
        return 1
    inner = value.values() if isinstance(value, dict) else value
    return 1 + sum(count(each) for each in inner) if value else 2


def depth(value: Any) -> int:
    """Levels of brackets."""
    level, found = [value], 0
    while level := [each for each in level if isinstance(each, (dict, list))]:
        found += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return found
