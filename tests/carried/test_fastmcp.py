"""The cases of `fastmcp_cases`, each as a test of its own."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.inside.processes import ROOT, interpreter

SCRIPT = Path(__file__).with_name("fastmcp_cases.py")
CASES = re.findall(r"^async def (test_\w+)", SCRIPT.read_text(), re.MULTILINE)

pytestmark = pytest.mark.xdist_group("fastmcp")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [interpreter("fastmcp"), str(SCRIPT)], env=environment, capture_output=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    found: dict[str, str | None] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_carried_fastmcp(case: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[case] is None, outcomes[case]
