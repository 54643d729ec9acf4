"""The benchmark's own programs still fit the library. What they measure is not judged here."""

import json
import subprocess
import sys
from pathlib import Path

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
