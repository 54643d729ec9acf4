"""A server is written into the file of each host, as that host reads it, and taken out again."""

import contextlib
import json
import os
import re
import shlex
import stat
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from typer.testing import CliRunner

from ekiden.cli.commands import app
from ekiden.cli.installing.hosts import HOSTS, Places
from ekiden.errors import UsageError
from tests.cli.driving import SHOP, ekiden

SERVE = ["-m", "ekiden.cli", "run", SHOP, "--stdio"]
OF_PROJECT = Path(__file__).parents[3] / ".venv" / "bin" / "python"
PYTHON = str(OF_PROJECT) if OF_PROJECT.is_file() else sys.executable
STDIO = {"command": PYTHON, "args": SERVE}
FILES = {
    "claude": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini": ".gemini/settings.json",
    "goose": ".config/goose/config.yaml",
}
SECTIONS = {"vscode": "servers", "goose": "extensions"}
THEIRS = {
    "claude": '{\n  "globalShortcut": "",\n  "mcpServers": {\n    "notes": {"command": "notes"}\n  }\n}\n',
    "claude-code": '{"numStartups": 7, "mcpServers": {"notes": {"command": "notes"}}, "projects": {}}',
    "cursor": '{\n\t"mcpServers": {\n\t\t"notes": { "url": "http://127.0.0.1/" },\n\t},\n}\n',
    "vscode": '{\n  // Ours.\n  "servers": {\n    "notes": {"command": "notes"} // stays\n  }\n}\n',
    "gemini": '{\n  /* mine */ "theme": "x",\n  "mcpServers": {\n    "notes": {"trust": true}\n  }\n}\n',
    "goose": "GOOSE_MODEL: gpt # mine\nextensions:\n  notes:\n    enabled: true\n    type: stdio\n",
}


def run(home: Path, *words: str, cwd: Path | None = None, fails: str = "", **settings: str) -> str:
    """What a command says that has this home. It runs in this process: there are many of them."""
    places = {"HOME": str(home), "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": "", **settings}
    with mock.patch.dict(os.environ, places), contextlib.chdir(cwd or home):
        done = CliRunner().invoke(app, list(words))
    if fails:
        assert isinstance(done.exception, UsageError)
        assert re.search(fails, str(done.exception)), done.exception
    else:
        assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def read(host: str, text: str) -> Any:
    """A file as its host reads it: comments and a last comma are allowed."""
    if host == "goose":
        return yaml.safe_load(text)
    return json.loads(re.sub(r",(\s*[}\]])", r"\1", re.sub(r"(?m)/\*.*?\*/|(?<!:)//.*$", "", text)))


@pytest.mark.parametrize("host", FILES)
def test_a_server_goes_into_a_file_that_is_there_and_comes_out_again(host: str, tmp_path: Path) -> None:
    file = tmp_path / FILES[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(THEIRS[host])
    file.chmod(0o640)
    said = run(tmp_path, "install", host, SHOP, "--no-check")
    assert said.startswith(f"shop is in {file}. ")
    section = SECTIONS.get(host, "mcpServers")
    before, after = read(host, THEIRS[host]), read(host, file.read_text())
    assert after[section].pop("shop")
    assert after == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.with_name(f"{file.name}.before-ekiden").read_text() == THEIRS[host]
    assert "has shop already" in run(tmp_path, "install", host, SHOP, "--no-check")
    run(tmp_path, "uninstall", host, "shop")
    assert file.read_text() == THEIRS[host]
    run(tmp_path, "uninstall", host, "shop", fails="has no server named shop")


@pytest.mark.parametrize("host", FILES)
def test_a_file_that_is_not_there_is_made_for_its_owner_alone(host: str, tmp_path: Path) -> None:
    name = "Shop-2" if host == "gemini" else "Shop_2"
    run(tmp_path, "install", host, SHOP, "--no-check", "--name", name)
    file = tmp_path / FILES[host]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == run(tmp_path, "install", host, SHOP, "--name", name, "--print")
    run(tmp_path, "uninstall", host, name)
    assert read(host, file.read_text()) == {SECTIONS.get(host, "mcpServers"): {}}


def entry(home: Path, host: str, *words: str, **settings: str) -> Any:
    text = run(home, "install", host, *words, "--name", "shop", "--print", **settings)
    return read(host, text)[SECTIONS.get(host, "mcpServers")]["shop"]


def test_each_host_gets_the_entry_that_it_reads(tmp_path: Path) -> None:
    words = [SHOP, "--env", "CITY=Nara", "--env", "FROM_HERE"]
    env = {"CITY": "Nara", "FROM_HERE": "1"}
    found = {host: entry(tmp_path, host, *words, FROM_HERE="1") for host in HOSTS}
    goose = found.pop("goose")
    assert found == {
        "claude": {**STDIO, "env": env},
        "claude-code": {"type": "stdio", **STDIO, "env": env},
        "cursor": {**STDIO, "env": env},
        "vscode": {"type": "stdio", **STDIO, "env": env},
        "gemini": {**STDIO, "env": env},
    }
    assert goose == {
        "enabled": True,
        "name": "shop",
        "description": "shop, an MCP server",
        "type": "stdio",
        "cmd": PYTHON,
        "args": SERVE,
        "envs": env,
        "env_keys": [],
        "timeout": 300,
        "bundled": None,
        "available_tools": [],
    }


def test_an_address_is_spelled_as_each_host_spells_it(tmp_path: Path) -> None:
    url, key = "https://shop.example/mcp", {"X-Key": "7"}
    words = ["--url", url, "--header", "X-Key: 7"]
    found = {host: entry(tmp_path, host, *words) for host in HOSTS if host != "claude"}
    goose = found.pop("goose")
    assert found == {
        "claude-code": {"type": "http", "url": url, "headers": key},
        "cursor": {"url": url, "headers": key},
        "vscode": {"type": "http", "url": url, "headers": key},
        "gemini": {"httpUrl": url, "headers": key},
    }
    assert (goose["type"], goose["uri"], goose["headers"]) == ("streamable_http", url, key)
    run(tmp_path, "install", "claude", "--url", url, fails="Claude Desktop starts commands only")
    assert "shop-example" in run(tmp_path, "install", "gemini", "--url", url, "--print")


def test_a_secret_is_not_written_down(tmp_path: Path) -> None:
    words = [SHOP, "--secret", "API_KEY"]
    found = {host: entry(tmp_path, host, *words, API_KEY="hidden") for host in HOSTS if host != "claude"}
    goose = found.pop("goose")
    assert {host: written["env"]["API_KEY"] for host, written in found.items()} == {
        "claude-code": "${API_KEY}",
        "cursor": "${env:API_KEY}",
        "vscode": "${input:API_KEY}",
        "gemini": "${API_KEY}",
    }
    assert (goose["env_keys"], goose["envs"]) == (["API_KEY"], {})
    run(tmp_path, "install", "claude", *words, fails="this host cannot look up secrets")


def test_vs_code_asks_for_a_secret_once_and_as_long_as_somebody_needs_it(tmp_path: Path) -> None:
    file = tmp_path / FILES["vscode"]
    for name in ("one", "two"):
        run(tmp_path, "install", "vscode", SHOP, "--no-check", "--name", name, "--secret", "API_KEY")
    asked = {"type": "promptString", "id": "API_KEY", "description": "API_KEY", "password": True}
    assert json.loads(file.read_text())["inputs"] == [asked]
    run(tmp_path, "uninstall", "vscode", "one")
    assert json.loads(file.read_text())["inputs"] == [asked]
    run(tmp_path, "uninstall", "vscode", "two")
    assert json.loads(file.read_text()) == {"inputs": [], "servers": {}}


def test_the_file_of_a_project_can_be_shared(tmp_path: Path) -> None:
    project = tmp_path / "work"
    python = project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (project / "pyproject.toml").write_text("")
    (project / "src").mkdir()
    (project / "src" / "server.py").write_text(Path(SHOP).read_text())
    for host, name in (("cursor", ".cursor/mcp.json"), ("vscode", ".vscode/mcp.json")):
        run(tmp_path, "install", host, "src/server.py", "--no-check", "--project", cwd=project)
        written = json.loads((project / name).read_text())[SECTIONS.get(host, "mcpServers")]["src"]
        assert written["command"] == "${workspaceFolder}/.venv/bin/python"
        assert written["args"][3] == "${workspaceFolder}/src/server.py"
    for host, name in (("claude-code", ".mcp.json"), ("gemini", ".gemini/settings.json")):
        run(
            tmp_path,
            "install",
            host,
            "src/server.py",
            "--no-check",
            "--project",
            "--name",
            "shop",
            cwd=project,
        )
        assert json.loads((project / name).read_text())["mcpServers"]["shop"]["command"] == str(python)
        run(tmp_path, "uninstall", host, "shop", "--project", cwd=project)
    run(
        tmp_path, "install", "goose", SHOP, "--project", "--no-check", fails="goose has no file for a project"
    )


def test_another_server_of_the_name_stays_unless_it_shall_be_replaced(tmp_path: Path) -> None:
    for host in HOSTS:
        run(tmp_path, "install", host, SHOP, "--no-check", "--name", "shop")
        file = tmp_path / FILES[host]
        mine = file.read_text().replace(SHOP, "/elsewhere.py")
        kept = '"timeout": 7, ' if host != "goose" else "extra: 7\n    "
        place = '"command"' if host != "goose" else "enabled"
        mine = mine.replace(place, kept + place, 1)
        file.write_text(mine)
        run(
            tmp_path,
            "install",
            host,
            SHOP,
            "--no-check",
            "--name",
            "shop",
            fails="has another server named shop",
        )
        assert file.read_text() == mine
        run(tmp_path, "install", host, SHOP, "--no-check", "--name", "shop", "--replace")
        assert file.read_text() == mine.replace("/elsewhere.py", SHOP)


def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    for host, broken in (("cursor", '{"mcpServers": {'), ("goose", "extensions: {a: 1}\n")):
        file = tmp_path / FILES[host]
        file.parent.mkdir(parents=True)
        file.write_text(broken)
        run(tmp_path, "install", host, SHOP, "--no-check", fails=f"{file} was not changed: ")
        run(tmp_path, "uninstall", host, "shop", fails=f"{file} was not changed: ")
        assert [entry.name for entry in file.parent.iterdir()] == [file.name]
        assert file.read_text() == broken
    file.write_bytes(b"a: \xff\n")
    run(tmp_path, "install", "goose", SHOP, "--no-check", fails="is not UTF-8")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").symlink_to(real)
    run(tmp_path, "install", "cursor", SHOP, "--no-check")
    assert (tmp_path / ".cursor" / "mcp.json").is_symlink()
    assert "shop" in json.loads(real.read_text())["mcpServers"]


def test_a_link_in_place_of_the_copy_is_not_followed(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / FILES["claude-code"], tmp_path / "precious"
    file.write_text(THEIRS["claude-code"])
    elsewhere.write_text("precious")
    file.with_name(f"{file.name}.before-ekiden").symlink_to(elsewhere)
    run(tmp_path, "install", "claude-code", SHOP, "--no-check")
    assert elsewhere.read_text() == "precious"
    assert file.with_name(f"{file.name}.before-ekiden").read_text() == THEIRS["claude-code"]
    assert len(list(tmp_path.glob(f"*{file.name}*"))) == 2


def test_a_command_that_does_not_serve_is_not_written(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    run(
        tmp_path,
        "install",
        "cursor",
        str(broken),
        fails="nothing was written, since the server does not answer",
    )
    assert not (tmp_path / ".cursor").exists()


def test_what_was_written_serves_when_it_is_started_as_written(tmp_path: Path) -> None:
    run(tmp_path, "install", "cursor", SHOP)
    written = json.loads((tmp_path / FILES["cursor"]).read_text())["mcpServers"]["shop"]
    command = shlex.join([written["command"], *written["args"]])
    assert ekiden("tools", command, "--json", cwd=tmp_path).stdout == ekiden("tools", SHOP, "--json").stdout


def test_a_project_of_uv_is_started_by_uv(tmp_path: Path) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    path = f"{uv.parent}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "uv.lock").write_text("")
    server = tmp_path / "shop.py"
    server.write_text("")
    words = ["python", "-m", "ekiden.cli", "run", f"{server}:shop", "--stdio"]
    started = entry(tmp_path, "claude", f"{server}:shop", PATH=path)
    assert started == {"command": str(uv), "args": ["run", "--project", str(tmp_path), *words]}
    assert entry(tmp_path, "claude", str(server), "--no-uv", PATH=path)["command"] == sys.executable
    alone = entry(tmp_path, "claude", SHOP, "--uv", PATH=path)
    assert alone["args"][:2] == ["run", "--project"]  # The tests themselves are in a project.
    (tmp_path / "pyproject.toml").unlink()
    assert entry(tmp_path, "claude", str(server), "--uv", PATH=path)["args"][1] == "--with"
    run(
        tmp_path,
        "install",
        "claude",
        str(server),
        "--uv",
        PATH="/nowhere",
        fails="there is no uv on the PATH",
    )


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for words, complaint in (
        ((), "name a file with a server, or the --url"),
        ((SHOP, "--url", "http://127.0.0.1/"), "and not both"),
        (("--url", "ftp://x"), "does not begin with http"),
        (("--url", "http://x", "--env", "A=1"), "for a server that is started"),
        ((SHOP, "--header", "A: 1"), "--header is for a server at a --url"),
        ((SHOP, "--name", "two words"), "is not a name that all hosts accept"),
        (("missing.py",), "there is no file missing.py"),
        ((SHOP, "--python", "/nowhere/python"), "there is no such file"),
    ):
        run(tmp_path, "install", "cursor", *words, fails=complaint)
    run(tmp_path, "install", "goose", SHOP, "--env", "PYTHONPATH=x", fails="goose does not let a server have")


def test_gemini_gets_no_name_with_an_underscore(tmp_path: Path) -> None:
    """Its rules for tools split `mcp_SERVER_TOOL` at the first one, and would be those of another server."""
    file = tmp_path / "tea_shop.py"
    file.write_text(Path(SHOP).read_text())
    for host, name in (("gemini", "tea-shop"), ("cursor", "tea_shop")):
        assert list(read(host, run(tmp_path, "install", host, str(file), "--print"))["mcpServers"]) == [name]
    run(tmp_path, "install", "gemini", SHOP, "--name", "tea_shop", fails="only up to its first _")


def test_the_files_are_where_each_system_has_them() -> None:
    home = Path("/home/aiko")
    mac, windows = Places(home, home, "darwin", {}), Places(home, home, "win32", {"APPDATA": "/roaming"})
    linux = Places(home, home, "linux", {"XDG_CONFIG_HOME": "/xdg", "CLAUDE_CONFIG_DIR": "/claude"})

    def files(places: Places) -> list[str]:
        return [str(host.file(places, of_project=False)) for host in HOSTS.values()]

    support = "/home/aiko/Library/Application Support"
    assert files(mac) == [
        f"{support}/Claude/claude_desktop_config.json",
        "/home/aiko/.claude.json",
        "/home/aiko/.cursor/mcp.json",
        f"{support}/Code/User/mcp.json",
        "/home/aiko/.gemini/settings.json",
        "/home/aiko/.config/goose/config.yaml",
    ]
    assert files(windows) == [
        "/roaming/Claude/claude_desktop_config.json",
        "/home/aiko/.claude.json",
        "/home/aiko/.cursor/mcp.json",
        "/roaming/Code/User/mcp.json",
        "/home/aiko/.gemini/settings.json",
        "/roaming/Block/goose/config/config.yaml",
    ]
    assert files(linux)[:2] == ["/xdg/Claude/claude_desktop_config.json", "/claude/.claude.json"]
    assert files(linux)[5] == "/xdg/goose/config.yaml"


def test_the_page_says_what_the_commands_say(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "how-to" / "install.md").read_text()
    session = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / ".claude.json").write_text("{}")
    words = re.split(r"^\$ ekiden (.*)\n", session, flags=re.MULTILINE)[1:]
    for command, said in zip(words[::2], words[1::2], strict=True):
        done = ekiden(*command.split(), cwd=root, HOME=str(tmp_path), CLAUDE_CONFIG_DIR="")
        assert done.stdout == said.replace("/home/aiko", str(tmp_path)), done.stderr
