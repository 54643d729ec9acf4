"""The reference of public names, as Markdown: signature, words, and a table of parameters for each."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import griffe

from scripts.site.public import PAGES, Page, PublicName

__all__ = ["page_of", "without_words"]

WIDTH: Final = 88
SENTENCE: Final = re.compile(r"(?<=[.:;])\s+(?=[A-Z`])")
PLAIN: Final = frozenset({"self", "cls", "args", "kwargs", "arguments", "options"})
"""Parameters that need no words: they are passed on."""
WORDS: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("words.toml").read_text())
INNER: Final = frozenset(WORDS["inner"]["names"])
MADE: Final = frozenset(WORDS["inner"]["made"])


def page_of(key: str, names: dict[str, PublicName]) -> str:
    """A page of the reference."""
    page: Page = PAGES[key]
    parts = [f"# {page.title}", page.about]
    for path in page.names:
        parts.extend(_entry(names[path]))
    return "\n\n".join(parts) + "\n"


def without_words(names: dict[str, PublicName]) -> list[str]:
    """What is public and has no words: names, their methods, attributes and parameters."""
    missing: list[str] = []
    for name in names.values():
        told = _said(name)
        if not told:
            missing.append(name.imported)
        missing.extend(
            f"{name.imported}({one.name})"
            for one in _made_with(name)
            if not _about(one.name, told, name.path)
        )
        for member in _members(name):
            place = f"{name.path}.{member.name}"
            if not (_words(member) or (member.is_attribute and _looked_up(member.name, name.path))):
                missing.append(f"ekiden.{place}")
            missing.extend(
                f"ekiden.{place}({one.name})"
                for one in _parameters(member)
                if not _about(one.name, _words(member), place)
            )
    return missing


def _entry(name: PublicName) -> Iterator[str]:
    what = name.what
    yield f"## {what.name} {{ #{name.imported} }}"
    yield f"`from {name.imported.rsplit('.', 1)[0]} import {what.name}`"
    callable_ = _initializer(name)
    if callable_ is not None:
        yield _code(_signature(what.name, callable_))
    elif what.is_attribute:
        yield _code(f"{what.name} = {what.value}")  # type: ignore[attr-defined]
    yield _said(name)
    yield from _table(_made_with(name), _said(name), name.path)
    fields = [member for member in _members(name) if member.is_attribute]
    if fields:
        yield "| attribute | type | what it is |\n|---|---|---|\n" + "\n".join(
            f"| `{field.name}` | {_typed(field.annotation)} |"
            f" {_cell(_words(field) or _looked_up(field.name, name.path))} |"
            for field in fields
        )
    for method in _members(name):
        if method.is_function:
            yield f"### {what.name}.{method.name} {{ #{name.imported}.{method.name} }}"
            yield _code(_signature(method.name, method))
            yield _words(method)
            yield from _table(_parameters(method), _words(method), f"{name.path}.{method.name}")


def _initializer(name: PublicName) -> Any:
    """What is called to make one: a function itself, the `__init__` of a class; None if nobody makes it."""
    what: Any = name.what
    if what.is_function:
        return what
    if not what.is_class or name.path in MADE or any("Protocol" in str(base) for base in what.bases):
        return None
    found = what.all_members.get("__init__")
    return None if found is None else (found.final_target if found.is_alias else found)


def _made_with(name: PublicName) -> list[Any]:
    return _parameters(_initializer(name))


def _members(name: PublicName) -> list[Any]:
    """The public methods and attributes of a class, its own first, in the order of the source."""
    what: Any = name.what
    if not what.is_class:
        return []
    found = []
    for key, member in {**what.members, **what.all_members}.items():
        target = member.final_target if member.is_alias else member
        ours = target.canonical_path.startswith("ekiden.")
        if not key.startswith("_") and ours and f"{name.path}.{key}" not in INNER and key != "render":
            found.append(target)
    return found


def _parameters(function: Any) -> list[Any]:
    if function is None or not function.is_function:
        return []
    return [
        one for one in _fullest(function).parameters if one.name not in PLAIN and not one.name.startswith("_")
    ]


def _fullest(function: Any) -> Any:
    """Of several overloads, the one that shows most."""
    return max([*(function.overloads or ()), function], key=lambda one: len(one.parameters))


def _signature(name: str, function: Any) -> str:
    chosen = _fullest(function)
    kinds = griffe.ParameterKind
    words: list[str] = []
    has_star = False
    for one in chosen.parameters:
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(one.kind, "")
        if one.kind is kinds.keyword_only and not has_star:
            words.append("*")
        has_star = has_star or one.kind in (kinds.var_positional, kinds.keyword_only)
        typed = f": {_unquoted(one.annotation)}" if one.annotation is not None else ""
        default = f" = {one.default}" if one.default is not None and not stars else ""
        words.append(f"{stars}{one.name}{typed}{default}")
    returned = (
        f" -> {_unquoted(chosen.returns)}" if chosen.returns is not None and name == chosen.name else ""
    )
    line = f"{name}({', '.join(words)}){returned}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returned}"


def _table(parameters: Sequence[Any], words: str, place: str) -> Iterator[str]:
    if parameters:
        yield "| parameter | type | default | what it is |\n|---|---|---|---|\n" + "\n".join(
            f"| `{one.name}` | {_typed(one.annotation)} | {_typed(one.default)} |"
            f" {_cell(_about(one.name, words, place))} |"
            for one in parameters
        )


def _about(name: str, words: str, place: str) -> str:
    """The sentences that speak of a parameter, or what `words.toml` has for it."""
    about = re.compile(rf"`(?:[^`]*\W)?{re.escape(name)}(?:\W[^`]*)?`")
    said = [one.strip() for one in SENTENCE.split(words.replace("\n", " ")) if about.search(one)]
    return " ".join(said) or _looked_up(name, place)


def _looked_up(name: str, place: str) -> str:
    """What `words.toml` says of a name in a place: the method, else its class, else anywhere."""
    for table in (place, place.rsplit(".", 1)[0], "common"):
        if name in WORDS.get(table, {}):
            return str(WORDS[table][name])
    return ""


def _said(name: PublicName) -> str:
    return _words(name.what) or str(WORDS["says"].get(name.path, ""))


def _words(what: Any) -> str:
    return "" if what.docstring is None else str(what.docstring.value).strip()


def _unquoted(expression: object) -> str:
    """A type as one writes it, without the quotes around what is imported for type checkers only."""
    text = str(expression)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _typed(expression: object) -> str:
    return "" if expression is None else f"`{_unquoted(expression)}`".replace("|", r"\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _code(text: str) -> str:
    return f"```python\n{text}\n```"
