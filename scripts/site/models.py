"""The pages for models: each as Markdown beside its HTML, a list (`llms.txt`), and all in one file."""

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["listed", "write_for_models"]


def listed(nav: list[Any], section: str = "") -> Iterator[tuple[str, str]]:
    """The section and the path of every page, in the order of the navigation."""
    for entry in nav:
        if isinstance(entry, str):
            yield section, entry
            continue
        [(title, inner)] = entry.items()
        if isinstance(inner, str):
            yield section or title, inner
        else:
            yield from listed(inner, section or title)


def write_for_models(settings: Mapping[str, Any], pages: Path, html: Path) -> None:
    """Write `llms.txt`, `llms-full.txt`, and a Markdown file beside every page."""
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}"]
    whole: list[str] = []
    seen = ""
    for section, path in listed(settings["nav"]):
        text = _text(pages / path)
        if section != seen:
            lines += ["", f"## {section}", ""]
            seen = section
        lines.append(f"- [{_title(text)}]({path})")
        whole.append(text)
    for page in pages.rglob("*.md"):
        place = html / page.relative_to(pages)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_text(page))
    (html / "llms.txt").write_text("\n".join(lines) + "\n")
    (html / "llms-full.txt").write_text("\n\n".join(whole))


def _text(page: Path) -> str:
    """A page without the scripts that only a browser needs."""
    lines = page.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("<script"))


def _title(text: str) -> str:
    first = next(line for line in text.splitlines() if line.startswith("# "))
    return posixpath.basename(first[2:].strip()) if first.startswith("# /") else first[2:].strip()
