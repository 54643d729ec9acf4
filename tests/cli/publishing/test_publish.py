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
        "https://example.com/aiko/tea/releases/download/v1/tea.mcpb",
        "https://github.com/aiko/tea/releases/download/v1/tea.zip",
        "https://github.com/aiko/tea/raw/main/tea.mcpb",
        "https://github.com/-aiko/tea/releases/download/v1/tea.mcpb",
        "http://github.com/aiko/tea/releases/download/v1/tea.mcpb",
        "https://gitlab.com/aiko/tea/releases/v1/downloads/tea.mcpb",
    ):
        run(tmp_path, *words, "--bundle-url", wrong, fails="--bundle-url says where it will be")
    for right in (
        "https://github.com/aiko/tea/releases/download/v1/Tea.MCPB",
        "https://gitlab.com/teas/green/tea/-/releases/v1/downloads/tea.mcpb",
        "https://gitlab.com/aiko/mcp-tea/-/package_files/7/download",
    ):
        held_to_the_rules(json.loads(run(tmp_path, *words, "--bundle-url", right)))


def test_a_server_at_an_address_needs_no_package(tmp_path: Path) -> None:
    (tmp_path / "tea.py").write_text(SERVER)
    words = ["publish", "tea.py", "--name", NAME, "--dry-run"]
    found = held_to_the_rules(json.loads(run(tmp_path, *words, "--remote", "https://tea.example/mcp")))
    assert found["remotes"] == [{"type": "streamable-http", "url": "https://tea.example/mcp"}]
    assert "packages" not in found
    (tmp_path / "tea.py").write_text(SERVER.replace('version="1.2.0"', 'version="1.2.0", title="  "'))
    untitled = held_to_the_rules(json.loads(run(tmp_path, *words, "--remote", "https://tea.example/mcp")))
    assert [key for key in found if key not in untitled] == ["title"]
    run(tmp_path, *words, fails="the registry has nothing to install")
    for wrong in (
        "tea.example",
        "http://tea.example/mcp",
        "https:///mcp",
        "https://[tea/mcp",
        "https://tea.example/m cp",
        "https://{tenant}.tea.example/mcp",
        "https://localhost/mcp",
        "https://tea.LOCALHOST./mcp",
        "https://127.0.0.1/mcp",
        "https://10.0.0.7/mcp",
        "https://100.64.0.1/mcp",
        "https://169.254.169.254/mcp",
        "https://224.0.0.1/mcp",
        "https://[::1]/mcp",
        "https://[::ffff:127.0.0.1]/mcp",
    ):
        run(tmp_path, *words, "--remote", wrong, fails="is not for everybody")


def test_a_package_whose_command_has_another_name_is_not_listed_as_one(tmp_path: Path) -> None:
    """Hosts run `uvx tea-shop@1.2.0`, which starts the command `tea-shop` and no other."""
    project(tmp_path)
    text = (tmp_path / "pyproject.toml").read_text().replace("{ tea-shop =", "{ tea =")
    (tmp_path / "pyproject.toml").write_text(text)
    run(tmp_path, "publish", "src/tea.py", fails=r"\[project.scripts\], tea-shop = ")
    words = ["publish", "src/tea.py", "--dry-run", "--remote", "https://tea.example/mcp"]
    assert "packages" not in held_to_the_rules(json.loads(run(tmp_path, *words)))


def test_addresses_that_the_registry_does_not_take_are_left_out(tmp_path: Path) -> None:
    project(tmp_path)
    pyproject = tmp_path / "pyproject.toml"
    whole = pyproject.read_text()

    def published(repository: str, homepage: str) -> tuple[str | None, str | None]:
        text = whole.replace("https://github.com/aiko/tea", repository)
        pyproject.write_text(text.replace("https://tea.example", homepage))
        entry = held_to_the_rules(json.loads(run(tmp_path, "publish", "src/tea.py", "--dry-run")))
        return entry.get("repository", {}).get("url"), entry.get("websiteUrl")

    github, gitlab, home = "https://github.com/aiko/tea", "https://gitlab.com/aiko/tea", "https://tea.example"
    assert published(f"{github}/tree/main/server", home) == (github, home)
    assert published(f"{github}#readme", "http://tea.example") == (github, None)
    assert published("https://github.com/aiko", "tea.example") == (None, None)
    assert published(f"{gitlab}/-/tree/main", home) == (gitlab, home)
    assert published(f"{gitlab}/server", home) == (None, home), "a project in a subgroup"
    assert published("https://codeberg.org/aiko/tea", home) == (None, home)


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
    for version in (">=1.2.0", "1.X", "1.x.2", "1.*", "1.0 - 2.0", "1.0||2.0", "latest"):
        pyproject.write_text(whole.replace('version = "1.2.0"', f'version = "{version}"'))
        run(tmp_path, "publish", "src/tea.py", fails="must be one version")
    for text in ("# Tea", f"mcp-name:{NAME}", f"mcp-name:  {NAME}"):
        (tmp_path / "README.md").write_text(text)
        run(tmp_path, "publish", "src/tea.py", fails="the registry needs a name")
    pyproject.write_text(whole.replace("scripts = ", "others = "))
    for name in ("no slash", "a/b/c", "aa/" + "b" * 198, ".aiko/tea", "aiko/tea.", "aiko/-tea", "a/b"):
        words = ["--name", name, "--remote", "https://tea.example/mcp"]
        run(tmp_path, "publish", "src/tea.py", *words, fails="is not a name for the registry")
