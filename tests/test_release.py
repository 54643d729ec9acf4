"""What a release promises is in order: its changelog, its floors, its extras, and what its scripts refuse."""

import re
import tomllib
from pathlib import Path

import pytest

from ekiden import __version__
from scripts import lowest, release

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_changelog_begins_with_the_version_that_would_be_released() -> None:
    assert release.version() == __version__
    release.check_changelog((ROOT / "CHANGELOG.md").read_text(), __version__)


@pytest.mark.parametrize("newest", ["Unreleased", "9.9.9 (2026-01-01)", "0.1.0", "0.1.0 (soon)"])
def test_a_changelog_of_another_version_is_refused(newest: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(repr(newest))):
        release.check_changelog(f"# Changes\n\n## {newest}\n\n- x\n", "0.1.0")
    release.check_changelog("# Changes\n\n## 0.1.0 (2026-11-17)\n", "0.1.0")


def test_every_dependency_has_a_floor_below_what_is_tested() -> None:
    floors = lowest.floors()
    for line in PROJECT["project"]["dependencies"]:
        name = lowest.normalised(re.split(r"[\[>]", line)[0])
        assert name in floors
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    tested = {lowest.normalised(name): version for name, version in pinned.items()}
    too_high = {name for name, floor in floors.items() if numbers(floor) > numbers(tested[name])}
    assert not too_high


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def test_the_lowest_versions_are_pinned_once_each() -> None:
    lines = lowest.constraints()
    names = [line.split("==")[0] for line in lines]
    assert len(names) == len(set(names))
    assert f"typer=={lowest.floors()['typer']}" in lines
    assert any(line.startswith("pytest==") for line in lines)


def test_the_environments_of_the_makefile_have_extras_that_there_are() -> None:
    extras = re.findall(r"^EXTRAS := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split(",")
    known = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == set(known) - {"fastmcp", "mcp"}
    page = (ROOT / "docs" / "policy.md").read_text()
    assert {name for name in known if f"`{name}`" not in page} == set()


def test_the_classifiers_name_the_pythons_that_are_tried() -> None:
    named = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert named == [f"3.{minor}" for minor in range(11, 15)]
