"""`server.json` says what the MCP Registry asks for, and what the registry would refuse is refused here."""

import hashlib
import json
from pathlib import Path

from .projects import NAME, SERVER, project, run
from .rules import held_to_the_rules

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


def test_a_project_is_published_as_a_package(tmp_path: Path) -> None:
    project(tmp_path)
    printed = run(tmp_path, "publish", "src/tea.py", "--dry-run", "--env", "CITY=Nara", "--secret", "API_KEY")
    assert not (tmp_path / "server.json").exists()
    assert held_to_the_rules(json.loads(printed)) == {
        "$schema": SCHEMA,
        "name": NAME,
        "title": "Tea shop",
        "description": "Brews tea.",
        "version": "1.2.0",
        "repository": {"url": "https://github.com/aiko/tea", "source": "github"},
        "websiteUrl": "https://tea.example",
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "tea-shop",
                "version": "1.2.0",
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "environmentVariables": [
                    {"name": "CITY", "value": "Nara"},
                    {"name": "API_KEY", "isRequired": True, "isSecret": True},
                ],
            }
        ],
    }
    said = run(tmp_path, "publish", "src/tea.py")
    assert said.startswith("server.json is written, and nothing was sent")
    assert json.loads((tmp_path / "server.json").read_text())["packages"][0]["identifier"] == "tea-shop"


def test_a_bundle_is_published_with_its_hash(tmp_path: Path) -> None:
    (tmp_path / "tea.py").write_text(SERVER)
    run(tmp_path, "bundle", "tea.py", "--author", "Aiko", "-o", "tea.mcpb")
    url = "https://github.com/aiko/tea/releases/download/v1/tea.mcpb"
    words = ["publish", "tea.py", "--name", NAME, "--bundle", "tea.mcpb", "--dry-run"]
    (package,) = held_to_the_rules(json.loads(run(tmp_path, *words, "--bundle-url", url)))["packages"]
    assert package == {
        "registryType": "mcpb",
        "identifier": url,
        "fileSha256": hashlib.sha256((tmp_path / "tea.mcpb").read_bytes()).hexdigest(),
        "transport": {"type": "stdio"},
    }
    for wrong in (
        "https://example.com/tea.mcpb",
        "https://github.com/aiko/tea.zip",
        "http://github.com/a.mcpb",
    ):
        run(tmp_path, *words, "--bundle-url", wrong, fails="--bundle-url says where it will be")


def test_a_server_at_an_address_needs_no_package(tmp_path: Path) -> None:
    (tmp_path / "tea.py").write_text(SERVER)
    words = ["publish", "tea.py", "--name", NAME, "--dry-run"]
    found = held_to_the_rules(json.loads(run(tmp_path, *words, "--remote", "https://tea.example/mcp")))
    assert found["remotes"] == [{"type": "streamable-http", "url": "https://tea.example/mcp"}]
    assert "packages" not in found
    run(tmp_path, *words, "--remote", "tea.example", fails="does not begin with https://")
    run(tmp_path, *words, fails="the registry has nothing to install")


def test_a_script_with_another_name_is_told_to_uvx(tmp_path: Path) -> None:
    project(tmp_path)
    text = (tmp_path / "pyproject.toml").read_text().replace("{ tea-shop =", "{ tea =")
    (tmp_path / "pyproject.toml").write_text(text)
    printed = run(tmp_path, "publish", "src/tea.py", "--dry-run")
    (package,) = held_to_the_rules(json.loads(printed))["packages"]
    assert package["runtimeArguments"] == [
        {"type": "named", "name": "--from", "value": "tea-shop"},
        {"type": "positional", "value": "tea"},
    ]


def test_what_the_registry_would_refuse_is_refused(tmp_path: Path) -> None:
    project(tmp_path)
    pyproject = tmp_path / "pyproject.toml"
    whole = pyproject.read_text()
    for words, complaint in (
        (["--name", "tea"], "mcp-name: tea"),
        (["--name", "io.github.aiko/other"], "mcp-name: io.github.aiko/other"),
        (["--description", "x" * 101], "has 101 letters"),
    ):
        run(tmp_path, "publish", "src/tea.py", *words, fails=complaint)
    pyproject.write_text(whole.replace('version = "1.2.0"', 'version = ">=1.2.0"'))
    run(tmp_path, "publish", "src/tea.py", fails="must be one version")
    (tmp_path / "README.md").write_text("# Tea\n")
    run(tmp_path, "publish", "src/tea.py", fails="the registry needs a name")
    pyproject.write_text(whole.replace("scripts = ", "others = "))
    for name in ("no slash", "a/b/c", "a/" + "b" * 200):
        words = ["--name", name, "--remote", "https://tea.example/mcp"]
        run(tmp_path, "publish", "src/tea.py", *words, fails="is not a name for the registry")
