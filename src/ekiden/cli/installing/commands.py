"""The commands of this folder and their options. A command imports what it needs when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from ekiden.cli.installing.launching import Launch, Remote

__all__ = ["install", "uninstall"]

HostName = Annotated[
    Literal["claude", "claude-code", "cursor", "vscode", "gemini", "goose"],
    typer.Argument(metavar="HOST", help="claude, claude-code, cursor, vscode, gemini or goose."),
]
OfProject = Annotated[
    bool, typer.Option("--project/--user", help="The file of this folder, or that of your own settings.")
]


def install(
    host: HostName,
    server: Annotated[
        str | None, typer.Argument(metavar="[FILE[:NAME]]", help="A Python file with a Server.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="The address of a server that runs already.")] = None,
    name: Annotated[str | None, typer.Option(help="How the host lists it; else as its file.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help="A variable for the server. Without a value: that of this command."
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A variable that is not written down: the host asks or looks it up."
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'Name: value', sent with every request to --url.")
    ] = None,
    python: Annotated[Path | None, typer.Option(help="The interpreter that runs the server.")] = None,
    uv: Annotated[
        bool | None,
        typer.Option("--uv/--no-uv", help="Start it with `uv run`; by default if there is a uv.lock."),
    ] = None,
    project: OfProject = False,
    show: Annotated[bool, typer.Option("--print", help="Print the entry, and change nothing.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a server of the same name.")] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Start the server once before anything is written.")
    ] = True,
) -> None:
    """Write a server into the configuration of a host."""
    from ekiden.cli.installing import install as installing
    from ekiden.cli.installing.checking import check_launch
    from ekiden.cli.installing.hosts import HOSTS, Places
    from ekiden.cli.installing.launching import Launch

    how = _how(server, url, header, env, secret, python, uv)
    chosen = HOSTS[host]
    listed = installing.name_of(server or url or "", name, chosen)
    if show:
        typer.echo(installing.printed(chosen, listed, how, Places.here(), of_project=project), nl=False)
        return
    if check and isinstance(how, Launch):
        check_launch(how)
    done = installing.install(chosen, listed, how, Places.here(), of_project=project, replace=replace)
    if not done.changed:
        typer.echo(f"{done.file} has {listed} already.")
        return
    typer.echo(f"{listed} is in {done.file}. {chosen.after}")
    if done.backup is not None:
        typer.echo(f"The file as it was: {done.backup}")


def uninstall(
    host: HostName,
    name: Annotated[str, typer.Argument(help="How the host lists the server.")],
    project: OfProject = False,
) -> None:
    """Take a server out of the configuration of a host."""
    from ekiden.cli.installing import install as installing
    from ekiden.cli.installing.hosts import HOSTS, Places

    done = installing.uninstall(HOSTS[host], name, Places.here(), of_project=project)
    typer.echo(f"{name} was removed from {done.file}.")
    typer.echo(f"The file as it was: {done.backup}")


def _how(
    server: str | None,
    url: str | None,
    header: list[str] | None,
    env: list[str] | None,
    secret: list[str] | None,
    python: Path | None,
    uv: bool | None,
) -> "Launch | Remote":
    from ekiden.cli.arguments import named_headers, variables
    from ekiden.cli.installing.launching import Remote, launch_of
    from ekiden.errors import UsageError

    if (server is None) == (url is None):
        raise UsageError("name a file with a server, or the --url of one that runs, and not both")
    if url is not None:
        if env or secret or python is not None or uv is not None:
            raise UsageError(
                "--env, --secret, --python and --uv are for a server that is started, not for --url"
            )
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"--url {url!r} does not begin with http:// or https://")
        return Remote(url=url, headers=named_headers(header or []))
    if header:
        raise UsageError("--header is for a server at a --url")
    assert server is not None
    return launch_of(server, python=python, uv=uv, env=variables(env or []), secrets=secret or [])
