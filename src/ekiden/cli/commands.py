"""The commands and their options. A command imports what it needs when it runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from ekiden.cli.calling.commands import call, prompt, read, tasks
from ekiden.cli.developing.command import dev
from ekiden.cli.gateway import gateway
from ekiden.cli.installing.commands import install, uninstall
from ekiden.cli.operating.command import ui
from ekiden.cli.options import (
    AccessLog,
    AllowHost,
    AllowOrigin,
    EndpointPath,
    Env,
    Era,
    Grace,
    Header,
    Host,
    Json,
    KeysFile,
    Logged,
    MaxConnections,
    MaxConnectionsPerAddress,
    MetricsPort,
    Port,
    Reload,
    Resume,
    RunTasks,
    ServerFile,
    Stateless2025,
    Stdio,
    StoreUrl,
    Strict,
    Target,
    Timeout,
    TlsCert,
    TlsKey,
    TrustProxy,
    WithoutAuth,
    WithoutMiddleware,
    Workers,
)
from ekiden.cli.publishing.commands import bundle, publish

if TYPE_CHECKING:
    from ekiden.cli.list import What

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


def _version(wanted: bool) -> None:
    if wanted:
        from ekiden.version import __version__

        typer.echo(f"ekiden {__version__}")
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
    server: ServerFile,
    stdio: Stdio = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    path: EndpointPath = "/mcp",
    workers: Workers = 1,
    store: StoreUrl = None,
    tasks: RunTasks = True,
    reload: Reload = False,
    keys_file: KeysFile = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    trust_proxy: TrustProxy = None,
    grace: Grace = 10.0,
    log_level: Logged = "warning",
    access_log: AccessLog = False,
    stateless_2025: Stateless2025 = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    max_connections: MaxConnections = None,
    max_connections_per_address: MaxConnectionsPerAddress = None,
    metrics_port: MetricsPort = None,
    resume: Resume = "replay",
    strict: Strict = False,
    without_auth: WithoutAuth = False,
    without_middleware: WithoutMiddleware = False,
) -> None:
    """Serve the server of a Python file: a Server, a FastMCP or an MCPServer."""
    from ekiden.cli.loading import Carrying
    from ekiden.cli.run import RunOptions, serve_file
    from ekiden.cli.serving.job import Job

    job = Job(
        spec=server,
        carrying=Carrying(resume, strict, without_auth, without_middleware),
        path=path,
        allow_hosts=allow_host or [],
        allow_origins=allow_origin or [],
        trusted_proxies=trust_proxy or [],
        grace=grace,
        log_level=log_level,
        access_log=access_log,
        show_trace=reload,
        stateless_2025=stateless_2025,
        tls_cert=tls_cert,
        tls_key=tls_key,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        metrics_port=metrics_port,
        tasks=tasks,
    )
    options = RunOptions(
        stdio=stdio, host=host, port=port, workers=workers, store=store, reload=reload, keys_file=keys_file
    )
    serve_file(job, options)


app.command()(dev)
app.command()(gateway)
app.command()(call)
app.command()(prompt)
app.command()(read)


def _add_list(kind: "What", about: str) -> None:
    @app.command(kind, help=about)
    def _(
        target: Target,
        header: Header = None,
        env: Env = None,
        era: Era = "auto",
        timeout: Timeout = None,
        json: Json = False,
    ) -> None:
        from ekiden.cli.list import show_list
        from ekiden.cli.targets import TargetOptions

        options = TargetOptions(target=target, headers=header or [], env=env or [], era=era, timeout=timeout)
        show_list(kind, options, as_json=json)


_add_list("tools", "List the tools of a server.")
_add_list("prompts", "List the prompts of a server.")
_add_list("resources", "List the resources and resource templates of a server.")


@app.command()
def worker(
    server: ServerFile,
    store: StoreUrl = None,
    keys_file: KeysFile = None,
    grace: Annotated[
        float | None,
        typer.Option(
            help="Seconds that running steps have to finish at the end; by default as the server says.", min=0
        ),
    ] = None,
    log_level: Logged = "warning",
    metrics_port: MetricsPort = None,
) -> None:
    """Run the tasks of a server, without serving clients."""
    from ekiden.cli.task_worker import run_tasks

    run_tasks(server, store, keys_file, grace, log_level, metrics_port)


app.command()(tasks)
app.command()(ui)
app.command()(install)
app.command()(uninstall)
app.command()(bundle)
app.command()(publish)


@stores.command("migrate")
def migrate(url: Annotated[str, typer.Argument(help="sqlite:///FILE or postgresql://...")]) -> None:
    """Create the tables of a store, or bring them up to date."""
    from ekiden.cli.stored_tasks import migrate as migrate_store

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
