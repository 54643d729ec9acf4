"""The commands and their options. A command imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["app"]

# rich_markup_mode=None: loading rich takes longer than showing the whole help.
app = typer.Typer(
    help="Serve, call and look into MCP servers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
keys = typer.Typer(help="Keys that seal the state of calls.", no_args_is_help=True)
app.add_typer(keys, name="keys")
stores = typer.Typer(help="Stores of rounds and tasks.", no_args_is_help=True)
app.add_typer(stores, name="store")

Target = Annotated[
    str, typer.Argument(help="A URL, a Python file (FILE[:NAME]), or a command that serves stdio.")
]
Header = Annotated[list[str] | None, typer.Option(help="'Name: value', sent with every HTTP request.")]
Era = Annotated[
    Literal["auto", "modern", "legacy"], typer.Option(help="Which protocol to speak: find out, 2026, 2025.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
KeysFile = Annotated[
    Path | None, typer.Option(help="A file with one key per line; the first one seals, all of them open.")
]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"ekiden {version('ekiden')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Serve, call and look into MCP servers."""


@app.command()
def run(
    server: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file with a Server.")],
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve stdin and stdout instead of HTTP.")] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any.", min=0, max=65535)] = 8000,
    path: Annotated[str, typer.Option(help="The path of the endpoint.")] = "/mcp",
    workers: Annotated[int, typer.Option(help="How many processes serve.", min=1)] = 1,
    store: Annotated[
        str | None, typer.Option(help="sqlite:///FILE or postgresql://..., if the server names none.")
    ] = None,
    tasks: Annotated[
        bool, typer.Option("--tasks/--no-tasks", help="Run tasks here, or only in `ekiden worker`.")
    ] = True,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when a Python file changes.")] = False,
    keys_file: KeysFile = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A host name besides localhost that clients may use; '*' allows any."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web origin whose pages may call the server.")
    ] = None,
    grace: Annotated[
        float, typer.Option(help="Seconds that running calls have to finish at the end.", min=0)
    ] = 10.0,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged to stderr.")] = "warning",
    stateless_2025: Annotated[
        bool, typer.Option("--stateless-2025", help="Keep no sessions for clients of 2025.")
    ] = False,
) -> None:
    """Serve the server of a Python file."""
    from ekiden.cli.run import RunOptions
    from ekiden.cli.run import run as run_server
    from ekiden.cli.serving.job import Job

    job = Job(
        spec=server,
        path=path,
        allow_hosts=allow_host or [],
        allow_origins=allow_origin or [],
        grace=grace,
        log_level=log_level,
        stateless_2025=stateless_2025,
        tasks=tasks,
    )
    run_server(
        RunOptions(
            job=job,
            stdio=stdio,
            host=host,
            port=port,
            workers=workers,
            store=store,
            reload=reload,
            keys_file=keys_file,
        )
    )


@app.command()
def call(
    target: Target,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE | NAME:=JSON]...", help="Its arguments.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="A JSON file of answers, by key or by a part of the message.")
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="One answer; the value may be @accept, @decline or @cancel."),
    ] = None,
    root: Annotated[
        list[str] | None, typer.Option(help="A folder or URI that the server may ask for.")
    ] = None,
    header: Header = None,
    era: Era = "auto",
    timeout: Annotated[float | None, typer.Option(help="Seconds for the whole call.", min=0)] = None,
    max_rounds: Annotated[int, typer.Option(help="How often the server may ask.", min=0)] = 100,
    save_to: Annotated[Path, typer.Option(help="The folder for images and sounds.")] = Path(),
    json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every round.")] = False,
) -> None:
    """Call a tool. What it asks is asked at the terminal."""
    from ekiden.cli.call import CallOptions
    from ekiden.cli.call import call as call_tool
    from ekiden.cli.targets import TargetOptions

    options = CallOptions(
        connection=TargetOptions(target=target, headers=header or [], era=era, timeout=timeout),
        tool=tool,
        arguments=arguments or [],
        answers=answers,
        answer=answer or [],
        roots=root or [],
        max_rounds=max_rounds,
        save_to=save_to,
        json=json,
        verbose=verbose,
    )
    raise typer.Exit(call_tool(options))


@app.command()
def tools(target: Target, header: Header = None, era: Era = "auto", json: Json = False) -> None:
    """List the tools of a server."""
    _list("tools", target, header, era, json)


@app.command()
def prompts(target: Target, header: Header = None, era: Era = "auto", json: Json = False) -> None:
    """List the prompts of a server."""
    _list("prompts", target, header, era, json)


@app.command()
def resources(target: Target, header: Header = None, era: Era = "auto", json: Json = False) -> None:
    """List the resources and resource templates of a server."""
    _list("resources", target, header, era, json)


def _list(
    what: Literal["tools", "prompts", "resources"],
    target: str,
    header: list[str] | None,
    era: str,
    as_json: bool,
) -> None:
    from ekiden.cli.list import show_list
    from ekiden.cli.targets import TargetOptions

    show_list(what, TargetOptions(target=target, headers=header or [], era=era), as_json=as_json)


@app.command()
def worker(
    server: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file with a Server.")],
    store: Annotated[
        str | None, typer.Option(help="sqlite:///FILE or postgresql://..., if the server names none.")
    ] = None,
    keys_file: KeysFile = None,
    grace: Annotated[
        float | None,
        typer.Option(
            help="Seconds that running steps have to finish at the end; by default as the server says.", min=0
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged to stderr.")] = "warning",
) -> None:
    """Run the tasks of a server, without serving clients."""
    from ekiden.cli.task_worker import run_tasks

    run_tasks(server, store, keys_file, grace, log_level)


@app.command()
def tasks(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[TARGET] list|get|cancel [ID]", help="Which server, what to do, which task."),
    ],
    store: Annotated[
        str | None, typer.Option(help="Read this store instead of asking a server; needed for list.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="List only tasks in this state.")] = None,
    limit: Annotated[int, typer.Option(help="How many to list at most.", min=1)] = 100,
    header: Header = None,
    era: Era = "auto",
    json: Json = False,
) -> None:
    """Look at tasks, or cancel one."""
    from ekiden.cli.targets import TargetOptions
    from ekiden.cli.tasks import TaskOptions, manage_tasks

    options = TaskOptions(store=store, state=state, limit=limit, json=json, words=words)
    manage_tasks(options, lambda target: TargetOptions(target=target, headers=header or [], era=era))


@stores.command("migrate")
def migrate(url: Annotated[str, typer.Argument(help="sqlite:///FILE or postgresql://...")]) -> None:
    """Create the tables of a store, or bring them up to date."""
    from ekiden.cli.tasks import migrate as migrate_store

    migrate_store(url)


@stores.callback()
def _stores() -> None:
    """Stores of rounds and tasks."""


@keys.command("new")
def new() -> None:
    """Make a key for EKIDEN_KEYS or a key file."""
    from ekiden.server.sealing.keys import new_key

    typer.echo(new_key())


@keys.callback()
def _keys() -> None:
    """Keys that seal the state of calls."""


@app.command()
def token(
    source: Annotated[str, typer.Argument(metavar="FILE_OR_-", help="Where the token is; - is stdin.")],
    keys_file: KeysFile = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show answers and step results too.")
    ] = False,
    json: Json = False,
) -> None:
    """Open a requestState with the keys of its server, and show its content."""
    from ekiden.cli.token import show_token

    show_token(source, keys_file, show_values=show_values, as_json=json)
