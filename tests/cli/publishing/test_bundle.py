"""An MCPB file has what the format asks for, nothing that is private, and a server that starts."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from scripts import npm
from tests.cli.driving import ekiden

from .projects import SERVER, project, run

PEER = Path(__file__).parents[3] / ".peers" / "mcpb" / "node_modules" / "@anthropic-ai" / "mcpb"


def opened(file: Path) -> tuple[Any, list[str]]:
    """The manifest, and the names of all files."""
    with zipfile.ZipFile(file) as archive:
        return json.loads(archive.read("manifest.json")), archive.namelist()


def held_to_the_schema(manifest: Any) -> None:
    schema = PEER / "schemas" / f"mcpb-manifest-v{manifest['manifest_version']}.schema.json"
    jsonschema_rs.validator_for(json.loads(schema.read_text())).validate(manifest)


def test_a_project_becomes_a_bundle_that_says_what_the_project_says(tmp_path: Path) -> None:
    project(tmp_path)
    said = run(tmp_path, "bundle", "src/tea.py", "--secret", "API_KEY", "--env", "CITY=Nara")
    assert said.startswith("tea-shop-1.2.0.mcpb: 3 files of yours, ")
    manifest, names = opened(tmp_path / "tea-shop-1.2.0.mcpb")
    held_to_the_schema(manifest)
    assert names == ["manifest.json", "README.md", "pyproject.toml", "src/tea.py"]
    started = ["run", "--directory", "${__dirname}", "python", "-m", "ekiden.cli", "run"]
    assert manifest == {
        "manifest_version": "0.4",
        "name": "tea-shop",
        "display_name": "Tea shop",
        "version": "1.2.0",
        "description": "Brews tea.",
        "author": {"name": "Aiko"},
        "repository": {"type": "git", "url": "https://github.com/aiko/tea"},
        "homepage": "https://tea.example",
        "server": {
            "type": "uv",
            "entry_point": "src/tea.py",
            "mcp_config": {
                "command": "uv",
                "args": [*started, "${__dirname}/src/tea.py", "--stdio"],
                "env": {"CITY": "Nara", "API_KEY": "${user_config.api_key}"},
            },
        },
        "tools": [{"name": "brew", "description": "Brew tea."}],
        "prompts_generated": True,
        "keywords": ["tea"],
        "license": "MIT",
        "compatibility": {"platforms": ["darwin", "linux", "win32"], "runtimes": {"python": ">=3.12"}},
        "user_config": {
            "api_key": {
                "type": "string",
                "title": "API_KEY",
                "description": "The value of API_KEY",
                "sensitive": True,
                "required": True,
            }
        },
    }


def test_what_is_private_or_made_by_tools_is_left_out(tmp_path: Path) -> None:
    project(tmp_path)
    private = [
        ".env",
        ".git/config",
        "env/pyvenv.cfg",
        "env/bin/python",
        "src/__pycache__/tea.pyc",
        "old.mcpb",
    ]
    for name in (*private, "notes/plan.md", "data/tea.csv", "data/big.bin"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (tmp_path / "linked.txt").symlink_to("/etc/hostname")
    (tmp_path / ".mcpbignore").write_text("# Not for others.\nnotes/\n*.bin\n")
    run(tmp_path, "bundle", "src/tea.py", "-o", "out.mcpb")
    names = ["manifest.json", "README.md", "data/tea.csv", "pyproject.toml", "src/tea.py"]
    assert opened(tmp_path / "out.mcpb")[1] == names
    assert run(tmp_path, "bundle", "src/tea.py", "--dry-run").splitlines()[-4:] == names[1:]


def test_a_file_alone_gets_a_project_that_names_ekiden(tmp_path: Path) -> None:
    (tmp_path / "tea.py").write_text(SERVER)
    (tmp_path / "diary.txt").write_text("private")
    run(tmp_path, "bundle", "tea.py:server", "--author", "Aiko", "-o", "out.mcpb")
    manifest, names = opened(tmp_path / "out.mcpb")
    held_to_the_schema(manifest)
    assert names == ["manifest.json", "pyproject.toml", "tea.py"]
    assert manifest["server"]["mcp_config"]["args"][-2] == "${__dirname}/tea.py:server"
    with zipfile.ZipFile(tmp_path / "out.mcpb") as archive:
        assert 'dependencies = ["ekiden[cli]==' in archive.read("pyproject.toml").decode()


def test_equal_sources_make_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    run(tmp_path, "bundle", "src/tea.py", "-o", "one.mcpb")
    os.utime(tmp_path / "src" / "tea.py", (1, 1))
    (tmp_path / "README.md").chmod(0o600)
    run(tmp_path, "bundle", "src/tea.py", "-o", "two.mcpb")
    assert (tmp_path / "one.mcpb").read_bytes() == (tmp_path / "two.mcpb").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    run(tmp_path, "bundle", "src/tea.py", "-o", "three.mcpb")
    with zipfile.ZipFile(tmp_path / "three.mcpb") as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {2023}


def test_the_server_in_a_bundle_starts_as_its_manifest_says(tmp_path: Path) -> None:
    project(tmp_path)
    run(tmp_path, "bundle", "src/tea.py", "-o", "out.mcpb")
    inside = tmp_path / "installed"
    with zipfile.ZipFile(tmp_path / "out.mcpb") as archive:
        archive.extractall(inside)
    manifest, _ = opened(tmp_path / "out.mcpb")
    words = [word.replace("${__dirname}", str(inside)) for word in manifest["server"]["mcp_config"]["args"]]
    python = words.index("python")  # What uv would start, in an environment that it makes.
    command = " ".join([sys.executable, *words[python + 1 :]])
    assert "a cup of sencha" in ekiden("call", command, "brew", "leaf=sencha", cwd=tmp_path).stdout


@pytest.mark.slow
def test_the_tool_of_the_format_accepts_a_bundle(tmp_path: Path) -> None:
    project(tmp_path)
    run(tmp_path, "bundle", "src/tea.py", "-o", "out.mcpb")
    for words in (["unpack", "out.mcpb", "unpacked"], ["validate", "unpacked/manifest.json"]):
        done = subprocess.run(
            [str(npm.NODE), str(PEER / "dist" / "cli" / "cli.js"), *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Manifest schema validation passes" in done.stdout
    assert (tmp_path / "unpacked" / "src" / "tea.py").read_text() == SERVER


def test_a_bundle_of_type_python_brings_its_packages_along(tmp_path: Path) -> None:
    home = tmp_path / "project"
    home.mkdir()
    file = project(home)
    wheel = tmp_path / "ekiden_leaf-1.0.0-py3-none-any.whl"
    about = "ekiden_leaf-1.0.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("leaf.py", "KIND = 'sencha'\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: ekiden-leaf\nVersion: 1.0.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    text = (home / "pyproject.toml").read_text()
    (home / "pyproject.toml").write_text(text.replace("ekiden[cli]>=0.1", f"ekiden-leaf @ {wheel.as_uri()}"))
    run(home, "bundle", str(file), "--type", "python", "-o", "out.mcpb")
    manifest, names = opened(home / "out.mcpb")
    held_to_the_schema(manifest)
    assert manifest["manifest_version"] == "0.3"
    assert manifest["compatibility"]["platforms"] == [sys.platform]
    assert manifest["server"]["mcp_config"]["env"] == {"PYTHONPATH": "${__dirname}/server/lib"}
    assert "server/lib/leaf.py" in names
    (home / "pyproject.toml").write_text(
        text.replace("ekiden[cli]>=0.1", "ekiden-leaf @ file:///nowhere.whl")
    )
    run(home, "bundle", str(file), "--type", "python", fails="pip could not install what the server needs")


def test_what_the_format_needs_and_nobody_said_is_asked_for(tmp_path: Path) -> None:
    file = project(tmp_path)
    pyproject = tmp_path / "pyproject.toml"
    whole = pyproject.read_text()
    for before, after, complaint in (
        ('authors = [{ name = "Aiko" }]', "", "a bundle must name its author"),
        ('version = "1.2.0"', 'version = "1.2"', "has three parts"),
        ('"ekiden[cli]>=0.1"', "", "does not name ekiden"),
        ("[project]", "[project", "cannot be read"),
    ):
        pyproject.write_text(whole.replace(before, after))
        run(tmp_path, "bundle", str(file), fails=complaint)
    pyproject.write_text(whole)
    run(tmp_path, "bundle", str(file), "--icon", "none.png", fails="there is no such file")
    run(tmp_path, "bundle", "none.py", fails="there is no file none.py")
