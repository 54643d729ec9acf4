"""The options of `ekiden dev`."""

from typing import Annotated

import typer

from ekiden.cli.options import (
    EndpointPath,
    Header,
    KeysFile,
    Logged,
    Resume,
    ServerFile,
    WithoutAuth,
    WithoutMiddleware,
)

__all__ = ["dev"]


def dev(
    server: ServerFile,
    port: Annotated[int, typer.Option(help="The port of the server; 0 takes any.", min=0, max=65535)] = 8000,
    path: EndpointPath = "/mcp",
    page_port: Annotated[
        int | None, typer.Option(help="The port of the page; by default 8001, or any.", min=0, max=65535)
    ] = None,
    opens: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open the page in a browser; by default if there is a display."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="sqlite:///FILE or postgresql://..., if the server names none; by default a new file."
        ),
    ] = None,
    header: Header = None,
    inspector: Annotated[
        bool, typer.Option("--inspector", help="Start the official Inspector as well (needs Node).")
    ] = False,
    keys_file: KeysFile = None,
    log_level: Logged = "warning",
    resume: Resume = "replay",
    without_auth: WithoutAuth = False,
    without_middleware: WithoutMiddleware = False,
) -> None:
    """Serve a Python file with reload, and a page to try it."""
    from ekiden.cli.arguments import named_headers
    from ekiden.cli.developing.dev import DevOptions
    from ekiden.cli.developing.dev import dev as develop
    from ekiden.cli.loading import Carrying
    from ekiden.cli.serving.job import Job

    job = Job(
        spec=server,
        carrying=Carrying(resume, False, without_auth, without_middleware),
        path=path,
        grace=1.0,  # A reload waits for running calls this long.
        log_level=log_level,
        record=True,
        show_trace=True,
    )
    develop(
        DevOptions(
            job=job,
            port=port,
            page_port=page_port,
            store=store,
            keys_file=keys_file,
            headers=named_headers(header or ()),
            opens=opens,
            inspector=inspector,
        )
    )
