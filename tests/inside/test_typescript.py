"""The official TypeScript client answers durable tools in every host, in both eras."""

import asyncio
import json
import runpy
import subprocess
from typing import Any

import pytest

from tests.inside.processes import PATIENCE, ROOT, HostProcesses
from tests.peers.running import require

SCRIPT = ROOT / "tests" / "peers" / "rounds" / "typescript_client.mjs"
YES = {"action": "accept", "content": {"ok": True}}
SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Nara"}}


def case(step: dict[str, Any], together: int = 1, **answers: Any) -> dict[str, Any]:
    return {
        "step": step,
        "answers": {words: [answer] for words, answer in answers.items()},
        "together": together,
    }


def run(mode: str, url: str, plan: dict[str, Any]) -> dict[str, Any]:
    require(ROOT / ".peers" / "node")
    node = runpy.run_path(str(ROOT / "scripts" / "npm.py"))["NODE"]
    ended = subprocess.run(
        [str(node), str(SCRIPT), mode, "http", url],
        input=json.dumps(plan).encode(),
        capture_output=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_typescript_client_is_asked(host: HostProcesses, mode: str) -> None:
    order = f"typescript-{mode}"
    refund = {"do": "call", "name": "refund", "arguments": {"order": order}}
    trip = {"Go?": YES, "Where to?": SAMPLED, "roots": {"roots": [{"uri": "file:///home/aiko"}]}}
    plan = {
        "able": {
            "refund": case(refund, **{f"Refund {order}?": YES, f"Send the receipt of {order}?": YES}),
            "trip": case({"do": "call", "name": "trip"}, 3, **trip),
            "prompt": case(
                {"do": "get", "name": "letter", "arguments": {"name": "Aiko"}}, **{"A letter to Aiko?": YES}
            ),
            "resource": case({"do": "read", "uri": "shop://orders/7"}, **{"Show order 7?": YES}),
            "plain": case({"do": "call", "name": "plain", "arguments": {"x": 3}}),
        },
        "unable": {},
    }
    said = await asyncio.to_thread(run, mode, host[0].url, plan)
    able = said["able"]
    assert said["version"] == ("2026-07-28" if mode == "auto" else "2025-11-25")
    assert [able[name]["result"]["content"][0]["text"] for name in ("refund", "trip", "plain")] == [
        f"receipt of {order}: accept, accept",
        "accept, Nara, file:///home/aiko",
        "3",
    ]
    assert able["prompt"]["result"]["messages"][0]["content"]["text"] == "Dear Aiko: accept"
    assert able["resource"]["result"]["contents"][0]["text"] == "order 7: accept"
    assert host.effects(order) == {"charge": 1}
