"""`ekiden dev`: what it serves to whom, and how it ends."""

import json
import os
import stat
from pathlib import Path

import httpx2
import pytest

from ekiden.cli.developing.dev import DevOptions, dev
from ekiden.cli.serving.job import Job
from ekiden.errors import UsageError
from tests.cli.developing.running import PATIENCE, developing, until

SMALL = """
from ekiden import Server

server = Server("small")


@server.tool
async def hello() -> str:
    return "hello"
"""


def options(**changes: object) -> DevOptions:
    given = {"job": Job(spec="server.py"), "port": 0, "page_port": 0, "store": None, "keys_file": None}
    return DevOptions(**{**given, "headers": {}, "opens": False, "inspector": False, **changes})  # type: ignore[arg-type]


def test_the_page_opens_with_the_link_and_for_nobody_else(tmp_path: Path) -> None:
    with developing(tmp_path, server=SMALL) as running, httpx2.Client(timeout=PATIENCE) as http:
        assert http.get(running.origin).status_code == 401
        opened = http.get(running.link)
        assert (opened.status_code, "ekiden-door" in opened.headers["set-cookie"]) == (303, True)
        shown = http.get(running.origin)
        assert shown.status_code == 200
        assert "hello" in shown.text
        assert "default-src 'none'" in shown.headers["content-security-policy"]
        rebound = http.get(running.origin, headers={"host": "evil.example"})
        assert rebound.status_code == 421, "a page of another name, which leads here, is refused"
        for path in ("/calls", "/tasks"):
            assert http.get(running.origin + path).status_code == 200


def test_a_file_with_a_mistake_is_waited_for(tmp_path: Path) -> None:
    with (
        developing(tmp_path, server=SMALL) as running,
        httpx2.Client(follow_redirects=True, timeout=PATIENCE) as http,
    ):
        http.get(running.link)
        running.file.write_text("def broken(:")
        until(lambda: "SyntaxError" in http.get(running.origin).text)
        running.file.write_text(SMALL.replace("hello", "goodbye"))
        until(lambda: "goodbye" in http.get(running.origin).text)
        running.wait_for("small is (served again)")


def test_the_inspector_is_told_of_the_server_and_ends_with_the_command(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    fake = tools / "npx"
    lines = ["#!/bin/sh", 'echo "$@" > told', 'cp "$5" settings', "echo $$ > pid", "exec sleep 600"]
    fake.write_text("\n".join(lines))
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    variables = {"PATH": f"{tools}:{os.environ['PATH']}"}
    with developing(
        tmp_path, "--inspector", "--header", "X-Who: me", server=SMALL, variables=variables
    ) as running:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        told = json.loads((tmp_path / "settings").read_text())["mcpServers"]["ekiden-dev"]
        where = running.wait_for(r"served at (\S+)")
        assert told == {"type": "http", "url": where, "protocolEra": "modern", "headers": {"X-Who": "me"}}
        assert "@modelcontextprotocol/inspector@2 --web --config" in (tmp_path / "told").read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_inspector_needs_npx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="there is no npx here"):
        dev(options(inspector=True))


def test_a_store_that_cannot_be_opened_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EKIDEN_KEYS", "")
    with pytest.raises(UsageError):
        dev(options(store="carrier-pigeon://"))
