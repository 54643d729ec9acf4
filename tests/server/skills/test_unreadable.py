"""Folders of skills with something in them that cannot be served."""

import os
from pathlib import Path
from typing import Any

import pytest

from ekiden import RegistrationError
from ekiden.extensions import Skills


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "git-workflow").mkdir()
    (tmp_path / "git-workflow/SKILL.md").write_text("---\nname: git-workflow\ndescription: x\n---\n")
    return tmp_path


def test_links_that_lead_in_circles_are_refused(folder: Path) -> None:
    (folder / "git-workflow/one").symlink_to("two")
    (folder / "git-workflow/two").symlink_to("one")
    with pytest.raises(RegistrationError, match="one' is a link that leads in circles"):
        Skills(folder)


def test_a_name_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / "git-workflow" / os.fsdecode(b"bad\xff.md")).write_text("x")
    with pytest.raises(RegistrationError, match="has a name that is not UTF-8: rename it"):
        Skills(folder)


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_is = Path.open

    def refusing(path: Path, *mode: Any) -> Any:
        if path.name == "locked.md":
            raise PermissionError(13, "Permission denied")
        return as_it_is(path, *mode)

    (folder / "git-workflow/locked.md").write_text("x")
    monkeypatch.setattr(Path, "open", refusing)
    with pytest.raises(RegistrationError, match=r"locked.md' cannot be read: Permission denied"):
        Skills(folder)


def test_of_a_huge_file_no_more_is_read_than_hosts_take(folder: Path) -> None:
    with (folder / "git-workflow/huge").open("wb") as file:
        file.truncate(1024**4)
    with pytest.raises(RegistrationError, match="bytes, and hosts take at most 16777216"):
        Skills(folder)
