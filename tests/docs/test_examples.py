"""The examples that are projects of their own, tested by their own tests in their own folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from scripts.postgres import Postgres

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PROJECTS = sorted(project.parent for project in EXAMPLES.glob("*/pyproject.toml"))


def test_there_are_projects() -> None:
    assert [project.name for project in PROJECTS] == ["careful_sql", "flashing"]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_the_tests_of_an_example_pass(project: Path, postgres: Postgres) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"],
        cwd=project,
        env={**os.environ, "DATABASE_URL": postgres.new_database(), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/compose.yaml")), ids=lambda file: file.parent.name)
def test_a_compose_file_runs_a_server_of_its_folder(file: Path) -> None:
    services = yaml.safe_load(file.read_text())["services"]
    command = services["server"]["command"][-1]
    served = next(word for word in command.split() if word.endswith(".py"))
    assert (file.parent / served).exists()
    assert services["server"]["ports"] == ["127.0.0.1:8000:8000"]
