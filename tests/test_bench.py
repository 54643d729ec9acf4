"""The benchmark's own programs still fit the library. What they measure is not judged here."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from bench.exchange import SENDERS, Call
from bench.load import requests_of

ROOT = Path(__file__).parent.parent


def test_replays_can_be_measured() -> None:
    command = [sys.executable, "-m", "bench.replay", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {name: len(values) for name, values in figures.items() if name.endswith("_us")} == {
        "ask_us": 1,
        "step_us": 1,
        "round_us": 1,
    }
    assert figures["token_bytes"] == sorted(figures["token_bytes"])


def test_no_two_requests_of_a_load_are_the_same() -> None:
    call = Call("tools/call", {"name": "greet", "arguments": {}}, "greet", {"elicitation": {}})
    bodies = [body for _, body in requests_of([replace(call, sender=sender) for sender in SENDERS])]
    messages = [json.loads(body) for body in bodies]
    metas = [message["params"]["_meta"] for message in messages]
    assert len({message["id"] for message in messages}) == len(messages) >= 256
    assert {type(message["id"]) for message in messages} == {int, str}
    assert {meta["io.modelcontextprotocol/clientInfo"]["name"] for meta in metas} == {
        sender.name for sender in SENDERS
    }
    assert all("elicitation" in meta["io.modelcontextprotocol/clientCapabilities"] for meta in metas)
