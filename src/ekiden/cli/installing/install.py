"""Writes a server into the file of a host, and takes it out again."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ekiden.cli.installing import json_text, yaml_text
from ekiden.cli.installing.files import OwnFile, read_file
from ekiden.cli.installing.hosts import Host, Places
from ekiden.cli.installing.launching import Launch, Remote
from ekiden.cli.loading import split_spec
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = ["Installed", "install", "name_of", "printed", "uninstall"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLAIN_NAMES = frozenset({"server", "main", "app", "__main__", "mcp"})
_INPUT = re.compile(r"\$\{input:([^}]+)\}")


class Installed(msgspec.Struct, frozen=True):
    """What became of a file."""

    file: Path
    changed: bool
    backup: Path | None
    """Where the file as it was is kept; None if it was not there, or was not changed."""


def name_of(source: str, given: str | None, host: Host) -> str:
    """The name under which a host lists a server.

    As given, or that of its file, of the file's folder, or of the machine in its address.
    """
    if source.startswith(("http://", "https://")):
        stem = urlsplit(source).hostname or ""
    else:
        path = split_spec(source)[0].resolve()
        stem = path.parent.name if path.stem in _PLAIN_NAMES else path.stem
    others = r"[^A-Za-z0-9_-]+" if host.underscores else r"[^A-Za-z0-9-]+"
    name = re.sub(others, "-", stem).strip("-") if given is None else given
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name that all hosts accept: --name takes letters, digits, - and _"
        )
    if "_" in name and not host.underscores:
        raise UsageError(f"{host.title} reads a name only up to its first _: write --name with - instead")
    return name


def printed(host: Host, name: str, how: Launch | Remote, places: Places, *, of_project: bool) -> str:
    """What `install` would write into a file that has nothing else."""
    return _with_entry(host, "", name, _entry(host, name, how, places, of_project))


def _entry(host: Host, name: str, how: Launch | Remote, places: Places, of_project: bool) -> JsonObject:
    """What is written. In the file of a project its folder is a variable, so that others can use the file."""
    entry = host.entry(name, how)
    if of_project and host.folder is not None:
        entry = _shared(entry, str(places.project.resolve()), host.folder)
    return entry


def install(
    host: Host, name: str, how: Launch | Remote, places: Places, *, of_project: bool, replace: bool
) -> Installed:
    """Write the entry. What is there under the same name is changed only if `replace` is set."""
    entry = _entry(host, name, how, places, of_project)
    file = read_file(host.file(places, of_project=of_project))
    text = _of_file(file, lambda text: _with_entry(host, text, name, entry))
    if text == file.text:
        return Installed(file.path, False, None)
    if not replace and file.text is not None and _has(host, file.text, name):
        raise UsageError(
            f"{file.path} has another server named {name}: choose a --name, or write over it with --replace"
        )
    return _written(file, text, private=not of_project)


def uninstall(host: Host, name: str, places: Places, *, of_project: bool) -> Installed:
    """Take the entry of this name out, and the inputs that only it has asked for."""
    file = read_file(host.file(places, of_project=of_project))
    if file.text is None or not _of_file(file, lambda text: str(_has(host, text, name) or "")):
        raise UsageError(f"{file.path} has no server named {name}")
    return _written(file, _of_file(file, lambda text: _without_entry(host, text, name)), private=True)


def _written(file: OwnFile, text: str, *, private: bool) -> Installed:
    file.replace(text, private=private)
    return Installed(file.path, True, None if file.text is None else file.backup)


def _of_file(file: OwnFile, change: Callable[[str], str]) -> str:
    """The changed text. What cannot be read is left as it is, and told with its name."""
    try:
        return change(file.text or "")
    except UsageError as error:
        raise UsageError(f"{file.path} was not changed: {error}") from None


def _has(host: Host, text: str, name: str) -> bool:
    if host.is_yaml:
        return yaml_text.has(text, [host.section, _goose_key(name)])
    return bool(text.strip()) and json_text.get(text, [host.section, name]) is not None


def _with_entry(host: Host, text: str, name: str, entry: JsonObject) -> str:
    """Keys of the user's in an entry stay, such as a timeout or a list of allowed tools."""
    if host.is_yaml:
        return _merged(yaml_text, text, [host.section, _goose_key(name)], entry, host)
    if host.asks:
        text = _with_inputs(text, entry)
    return _merged(json_text, text, [host.section, name], entry, host)


def _merged(editor: Any, text: str, path: list[str], entry: JsonObject, host: Host) -> str:
    if not _has(host, text, path[-1]):
        return str(editor.put(text, path, entry))
    for key in sorted(host.launching - set(entry)):
        text = editor.drop(text, [*path, key])
    for key, value in entry.items():
        if key in host.launching or not _is_there(editor, text, [*path, key]):
            text = editor.put(text, [*path, key], value)
    return text


def _is_there(editor: Any, text: str, path: list[str]) -> bool:
    return bool(editor.has(text, path) if editor is yaml_text else editor.get(text, path) is not None)


def _without_entry(host: Host, text: str, name: str) -> str:
    if host.is_yaml:
        return yaml_text.drop(text, [host.section, _goose_key(name)])
    asked = _inputs_of(json_text.get(text, [host.section, name])) if host.asks else set[str]()
    text = json_text.drop(text, [host.section, name])
    for wanted in asked - _inputs_of(json_text.get(text, [host.section])):
        inputs = json_text.get(text, ["inputs"])
        for number, known in reversed(list(enumerate(inputs if is_array(inputs) else []))):
            if is_object(known) and known.get("id") == wanted:
                text = json_text.drop(text, ["inputs", number])
    return text


def _with_inputs(text: str, entry: JsonObject) -> str:
    for wanted in sorted(_inputs_of(entry)):
        inputs = json_text.get(text, ["inputs"]) if text.strip() else None
        known = inputs if is_array(inputs) else []
        if any(is_object(one) and one.get("id") == wanted for one in known):
            continue
        asked = {"type": "promptString", "id": wanted, "description": wanted, "password": True}
        text = json_text.put(text, ["inputs", len(known)], asked)
    return text


def _inputs_of(value: Any) -> set[str]:
    """The inputs that a part of the file refers to."""
    if isinstance(value, str):
        return set(_INPUT.findall(value))
    parts = value.values() if is_object(value) else value if is_array(value) else ()
    return {name for part in parts for name in _inputs_of(part)}


def _shared(value: Any, folder: str, variable: str) -> Any:
    """The same with a variable for a folder."""
    if isinstance(value, str):
        inside = value == folder or value.startswith((f"{folder}/", f"{folder}\\"))
        return variable + value[len(folder) :] if inside else value
    if is_object(value):
        return {key: _shared(part, folder, variable) for key, part in value.items()}
    return [_shared(part, folder, variable) for part in value] if is_array(value) else value


def _goose_key(name: str) -> str:
    """The key under which goose keeps a name."""
    return name.lower()
