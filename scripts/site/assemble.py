"""Puts the pages together: those of the repository, with their links set right, and those from the code."""

import posixpath
import re
import shutil
from pathlib import Path
from typing import Final

from scripts.site import api, commands, environment, errors, public

__all__ = ["DIAGRAM", "assemble", "generated"]

FENCE: Final = re.compile(r"(^(?: {4})*```.*?^ *```\n)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
DIAGRAM: Final = "```mermaid"

HOMES: Final = {
    "README.md": "index.md",
    "docs/README.md": "all-pages.md",
    "CHANGELOG.md": "project/changes.md",
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "bench/RESULTS.md": "project/benchmark.md",
}
"""Where pages go that do not lie in `docs`."""


def generated() -> dict[str, str]:
    """The pages that are read from the code, by their place on the site."""
    names = public.public_names(public.load())
    pages = {f"reference/api/{key}.md": api.page_of(key, names) for key in public.PAGES}
    return {
        **pages,
        "reference/errors.md": errors.page(),
        "reference/commands.md": commands.page(),
        "reference/environment.md": environment.page(),
    }


def assemble(root: Path, target: Path) -> None:
    """Write all pages of the site below `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    site = _Site(root, target)
    for page in sorted((root / "docs").rglob("*.md")):
        path = page.relative_to(root).as_posix()
        if path not in HOMES:
            site.add(path, path.removeprefix("docs/"))
    for path, home in HOMES.items():
        site.add(path, home)
    for home, text in generated().items():
        site.write(home, text)
    for picture in (root / "docs").rglob("*"):
        if picture.suffix in (".png", ".svg", ".css", ".js"):
            place = target / picture.relative_to(root / "docs")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, place)


class _Site:
    """The pages, and the sources that they link to."""

    def __init__(self, root: Path, target: Path) -> None:
        self._root, self._target = root, target

    def add(self, path: str, home: str) -> None:
        """A page of the repository, at its place on the site."""
        self.write(home, self._with_links(path, home, (self._root / path).read_text()))

    def write(self, home: str, text: str) -> None:
        """A page as it is."""
        place = self._target / home
        place.parent.mkdir(parents=True, exist_ok=True)
        if DIAGRAM in text:
            up = posixpath.relpath("assets/mermaid.min.js", posixpath.dirname(home) or ".")
            text += f'\n<script src="{up}"></script>\n'
        place.write_text(text)

    def _with_links(self, path: str, home: str, text: str) -> str:
        """The text, with links that lead to the same things on the site. Code stays as it is."""

        def moved(match: re.Match[str]) -> str:
            label, link = match.groups()
            name, mark, anchor = link.partition("#")
            if not name or "://" in link or link.startswith("mailto:"):
                return match[0]
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            leads = posixpath.relpath(self._home(found), posixpath.dirname(home) or ".")
            return f"{label}({leads}{mark}{anchor})"

        parts = FENCE.split(text)
        return "".join(part if part.lstrip().startswith("```") else LINK.sub(moved, part) for part in parts)

    def _home(self, path: str) -> str:
        """Where something of the repository is on the site. A source is put there when it is first wanted."""
        if path in HOMES:
            return HOMES[path]
        source, home = self._root / path, f"source/{path}.md"
        if path.startswith("docs/") and source.is_file():
            return path.removeprefix("docs/")
        if source.is_dir() and (source / "README.md").exists():
            return self._home(f"{path}/README.md")
        if path.endswith(".md"):
            home = f"source/{path}"
        if not (self._target / home).exists():
            if path.endswith(".md"):
                self.write(home, "")  # It is there, for pages that link to each other.
                self.add(path, home)
            else:
                self.write(home, f"# {path}\n\n" + self._shown(source))
        return home

    def _shown(self, source: Path) -> str:
        if source.is_dir():
            inside = sorted(
                one.relative_to(self._root).as_posix() for one in source.iterdir() if one.is_file()
            )
            return "\n".join(
                f"- [{one}](../{posixpath.relpath(self._home(one), 'source')})" for one in inside
            )
        language = {".py": "python", ".toml": "toml", ".conf": "nginx", ".json": "json", ".yaml": "yaml"}.get(
            source.suffix, "text"
        )
        return f"````{language}\n{source.read_text()}````\n"
