"""`ekiden gateway`: serve the servers of an `mcpServers` file behind one endpoint."""

from pathlib import Path
from typing import Annotated

import typer

from ekiden.cli.options import (
    AccessLog,
    AllowHost,
    AllowOrigin,
    EndpointPath,
    Grace,
    Host,
    KeysFile,
    Logged,
    MetricsPort,
    Port,
    Stdio,
    TlsCert,
    TlsKey,
    TrustProxy,
    Workers,
)
from ekiden.errors import UsageError

__all__ = ["gateway"]


def gateway(
    file: Annotated[Path, typer.Argument(metavar="FILE", help='A JSON file with "mcpServers".')],
    stdio: Stdio = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    path: EndpointPath = "/mcp",
    workers: Workers = 1,
    store: Annotated[
        str | None, typer.Option(help="sqlite:///FILE or postgresql://..., for sessions of 2025.")
    ] = None,
    keys_file: KeysFile = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    trust_proxy: TrustProxy = None,
    grace: Grace = 10.0,
    log_level: Logged = "warning",
    access_log: AccessLog = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Serve many servers as one: those that an mcpServers file names."""
    from ekiden.cli.run import RunOptions, serve_file
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
        tls_cert=tls_cert,
        tls_key=tls_key,
        metrics_port=metrics_port,
    )
    options = RunOptions(
        stdio=stdio, host=host, port=port, workers=workers, store=store, reload=False, keys_file=keys_file
    )
    serve_file(job, options)
