"""The files for deployment: what they start is started, and what can check them does."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx2
import pytest

from ekiden.server.sealing.keys import new_key
from scripts.ports import free_port
from tests.cli.driving import SHOP, Running, eventually, running

ROOT = Path(__file__).parent.parent.parent
UNIT = (ROOT / "examples" / "deploy" / "ekiden.service").read_text()
CONTAINER = (ROOT / "examples" / "deploy" / "Containerfile").read_text()


def probes(port: int) -> list[int]:
    try:
        return [
            httpx2.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=5).status_code
            for path in ("/healthz", "/readyz")
        ]
    except httpx2.TransportError:
        return []


def option(name: str, arguments: list[str]) -> str:
    return arguments[arguments.index(name) + 1]


def started(unit: str) -> list[str]:
    """The words of the command that a unit starts."""
    found = re.search(r"^ExecStart=(.*?[^\\])$", unit, re.MULTILINE | re.DOTALL)
    assert found is not None
    return shlex.split(found[1].replace("\\\n", " "))


def test_the_command_of_the_unit_serves_renews_its_keys_and_stops_within_its_time(tmp_path: Path) -> None:
    program, run, _, *options = started(UNIT)
    assert (Path(program).name, run) == ("ekiden", "run")
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(new_key())
    port = free_port()
    here = {
        option("--port", options): str(port),
        option("--metrics-port", options): str(free_port()),
        option("--keys-file", options): str(keys),
        option("--store", options): f"sqlite:///{tmp_path}/tasks.db",
        option("--workers", options): "1",  # The ports for metrics of several would have to be free in a row.
    }
    with running(tmp_path / "log", "run", SHOP, *[here.get(word, word) for word in options]) as server:
        eventually(lambda: probes(port) == [200, 200], lambda: f"it is ready: {server.said}")
        assert "ExecReload=/bin/kill -HUP $MAINPID" in UNIT
        keys.write_text(new_key())
        os.kill(server.process.pid, signal.SIGHUP)
        eventually(lambda: probes(port) == [200, 200], "it lives")
        assert _ended_in_order(server)
    grace = float(option("--grace", options))
    limit = re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert limit is not None
    assert float(limit[1]) > 2 * grace


def _ended_in_order(server: Running) -> bool:
    return server.stop() in (0, -signal.SIGTERM) and "Traceback" not in server.said


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:  # Elsewhere than on Linux. What the unit starts is tested above in any case.
        assert not sys.platform.startswith("linux") or not Path("/usr/lib/systemd").exists()
        return
    unit = tmp_path / "ekiden.service"
    unit.write_text(UNIT.replace(started(UNIT)[0], sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def instruction(name: str) -> list[str]:
    """The words of an instruction in its JSON form."""
    found = re.search(rf"^{name} (\[.*\])$", CONTAINER, re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def test_the_command_of_the_container_serves_and_its_health_check_agrees(tmp_path: Path) -> None:
    entry = instruction("ENTRYPOINT")
    assert entry[:3] == ["ekiden", "run", "/srv/server.py"]
    assert "COPY server.py /srv/server.py" in CONTAINER
    port = free_port()
    options = [*entry[3:], *instruction("CMD")]
    options[options.index("--port") + 1] = str(port)
    options[options.index("--host") + 1] = "127.0.0.1"
    with running(tmp_path / "log", "run", SHOP, *options) as server:
        eventually(lambda: probes(port) == [200, 200], lambda: f"it is ready: {server.said}")
        healthy = subprocess.run([sys.executable, *_health_check(port)], timeout=30, check=False)
        assert healthy.returncode == 0
        assert _ended_in_order(server)
    sick = subprocess.run(
        [sys.executable, *_health_check(port)], timeout=30, check=False, stderr=subprocess.DEVNULL
    )
    assert sick.returncode != 0


def _health_check(port: int) -> list[str]:
    found = re.search(r"^    CMD (\[.*\])$", CONTAINER, re.MULTILINE)
    assert found is not None
    program, *words = json.loads(found[1])
    assert program == "python"
    return [word.replace(":8000/", f":{port}/") for word in words]


def test_the_extras_that_the_container_names_exist() -> None:
    named = re.search(r"ekiden\[([a-z,]+)\]", CONTAINER)
    assert named is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(named[1].split(",")) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("page", ["SECURITY.md", "CONTRIBUTING.md"])
def test_every_link_of_a_page_at_the_root_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target
