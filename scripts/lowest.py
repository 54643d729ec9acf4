"""The lowest versions that `pyproject.toml` allows, as constraints for pip.

    python -m scripts.lowest > lowest.txt

Direct dependencies and those of the extras are held to their floor; what these bring themselves is up to pip.
Tools of the `dev` group have the versions of `constraints.txt`, as always.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLOOR = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=(?P<version>[^,;\s]+)(?P<rest>[^;]*)(?P<marker>;.*)?"
)
HOSTS = {"fastmcp"}
"""Extras that are tested in environments of their own."""


def normalised(name: str) -> str:
    """A name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def floors() -> dict[str, str]:
    """Each dependency with its lowest version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in extras.keys() - HOSTS for line in extras[name])]
    lowest: dict[str, str] = {}
    for line in wanted:
        found = FLOOR.fullmatch(line)
        if found is None:
            raise SystemExit(f"{line!r} in pyproject.toml has no floor (NAME>=VERSION)")
        lowest[normalised(found["name"])] = found["version"]
    return lowest


def tools() -> dict[str, str]:
    """What tests are run with, in the versions of `constraints.txt`."""
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    versions = {normalised(name): version for name, version in pinned.items()}
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    names = [normalised(re.split(r"[\[>=<]", line)[0]) for line in groups["lowest"]]
    return {name: versions[name] for name in names if name in versions}


def constraints() -> list[str]:
    """One line for each of them."""
    return [f"{name}=={version}" for name, version in sorted({**tools(), **floors()}.items())]


if __name__ == "__main__":
    print("\n".join(constraints()))
