"""`ekiden gateway`: serve the servers of an `mcpServers` file behind one endpoint."""

from pathlib import Path
from typing import Annotated

import typer

from ekiden.cli.options import KeysFile, LogLevel, MetricsPort
from ekiden.errors import UsageError

__all__ = ["gateway"]


def gateway(
    file: Annotated[Path, typer.Argument(metavar="FILE", help='A JSON file with "mcpServers".')],
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve stdin and stdout instead of HTTP.")] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any.", min=0, max=65535)] = 8000,
    path: Annotated[str, typer.Option(help="The path of the endpoint.")] = "/mcp",
    workers: Annotated[int, typer.Option(help="How many processes serve.", min=1)] = 1,
    store: Annotated[
        str | None, typer.Option(help="sqlite:///FILE or postgresql://..., for sessions of 2025.")
    ] = None,
    keys_file: KeysFile = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A host name besides localhost that clients may use; '*' allows any."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web origin whose pages may call the gateway.")
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-proxy", help="An address or network whose X-Forwarded-For is believed. Repeat it."
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(help="Seconds that running calls have to finish at the end.", min=0)
    ] = 10.0,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged to stderr.")] = "warning",
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line for each response over HTTP.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(help="A certificate in PEM, with its chain: serve HTTPS instead of HTTP.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The key of that certificate, unless it is in the same file.")
    ] = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Serve many servers as one: those that an mcpServers file names."""
    from ekiden.cli.run import RunOptions, run
    from ekiden.cli.serving.job import Job
    from ekiden.gateway.config import read_config

    if file.suffix != ".json":
        raise UsageError(f"{file} must be a .json file; a Python file with a Server is for `ekiden run`")
    read_config(file)  # A mistake in it is told now, not by every worker.
    job = Job(
        spec=str(file),
        path=path,
        allow_hosts=allow_host or [],
        allow_origins=allow_origin or [],
        trusted_proxies=trust_proxy or [],
        grace=grace,
        log_level=log_level,
        access_log=access_log,
        tls_cert=None if tls_cert is None else str(tls_cert),
        tls_key=None if tls_key is None else str(tls_key),
        metrics_port=metrics_port,
    )
    run(
        RunOptions(
            job=job,
            stdio=stdio,
            host=host,
            port=port,
            workers=workers,
            store=store,
            reload=False,
            keys_file=keys_file,
        )
    )
