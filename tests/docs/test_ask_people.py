"""The example of how people are asked, and its demo."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_the_demo_plays_the_story_without_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # There is no Chromium there.
    played = subprocess.run(
        [sys.executable, "-m", "examples.demo_pages", "--pictures", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    assert "There is no Chromium here" in played.stdout
    assert "2 seats to Sendai for Aiko" in played.stdout
