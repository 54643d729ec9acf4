"""The reference of the command line, read from the commands themselves."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from ekiden.cli.commands import app

__all__ = ["commands", "page"]


def commands() -> dict[str, Any]:
    """Every command by its words, as `ekiden tasks wait`."""
    found: dict[str, Any] = {}

    def collect(words: str, command: Any) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found[words] = command
            return
        for name, child in inner.items():
            if not child.hidden:
                collect(f"{words} {name}", child)

    assert isinstance(app, typer.Typer)
    collect("ekiden", get_command(app))
    return found


def page() -> str:
    """Each command with its arguments and options."""
    parts = [
        "# Commands",
        (
            "Each command tells this with `--help`, too. "
            "[How to use the command line](../how-to/command-line.md) has examples."
        ),
    ]
    for words, command in commands().items():
        parts.extend(_entry(words, command))
    return "\n\n".join(parts) + "\n"


def _entry(words: str, command: Any) -> Iterator[str]:
    yield f"## {words} {{ #{words.replace(' ', '-')} }}"
    yield " ".join((command.help or "").split("\f")[0].split())
    context = typer.Context(command)
    rows = [
        _row(parameter, context) for parameter in command.params if not getattr(parameter, "hidden", False)
    ]
    if rows:
        yield "| argument or option | default | what it does |\n|---|---|---|\n" + "\n".join(rows)


def _row(parameter: Any, context: typer.Context) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [parameter.metavar or parameter.name.upper()]
    elif not parameter.is_flag:
        names[0] += f" {parameter.metavar or parameter.display_type(context)}"
    shown = ", ".join(f"`{name}`" for name in names).replace("|", r"\|")
    default = "required" if parameter.required else _default(parameter)
    words = " ".join((parameter.help or "").split()).replace("|", r"\|")
    if parameter.envvar:
        words += f" Or in the environment: `{parameter.envvar}`."
    return f"| {shown} | {default} | {words} |"


def _default(parameter: Any) -> str:
    given = parameter.default
    if given is None or given is False or given in ((), [], "") or callable(given):
        return ""
    shown = "yes" if given is True else getattr(given, "value", given)
    return f"`{shown}`"
