"""A hostile server on stdin and stdout: `python -m tests.hostile.fuzzed.stdio SEED`."""

import json
import random
import sys
import time
from typing import Any

from .values import POISON, mutated, odd, question, result_for, task


def main() -> None:
    dice = random.Random(int(sys.argv[1]))
    for number, line in enumerate(sys.stdin):
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        opening = message["method"] in ("server/discover", "initialize", "tools/list", "prompts/list")
        if not opening or dice.random() < 0.1:
            _misbehave(dice, message)
        result = result_for(dice, message["method"], number)
        for _ in range(dice.choice([0, 0, 1, 3]) if not opening else 0):
            result = mutated(dice, result)
        _send(id=message["id"], result=result)


def _misbehave(dice: random.Random, message: dict[str, Any]) -> None:
    """Say something besides the response, or instead of it."""
    deed = dice.choice(["nothing", "noise", "garbage", "error", "ask", "silence", "end", "flood"])
    if deed == "noise":
        token = message["params"].get("_meta", {}).get("progressToken", 1)
        progress = {"progressToken": token, "progress": dice.choice([1, 1e308, "x"]), "message": POISON}
        _send(method="notifications/progress", params=progress)
        _send(method="notifications/message", params={"level": POISON, "data": odd(dice)})
        _send(method="notifications/tasks", params=task(dice))
    elif deed == "garbage":
        print(POISON.replace("\n", " "), flush=True)
    elif deed == "error":
        _send(id=message["id"], error={"code": dice.choice([-32602, -32601, "x"]), "message": POISON})
    elif deed == "ask":
        _send(id=dice.choice([1, "a"]), **question(dice))
    elif deed == "silence":
        time.sleep(3600)
    elif deed == "end":
        sys.exit(dice.choice([0, 1]))
    elif deed == "flood":
        for _ in range(5000):
            _send(method="notifications/message", params={"level": "info", "data": POISON})


def _send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if __name__ == "__main__":
    main()
