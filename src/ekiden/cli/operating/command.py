"""The options of `ekiden ui`."""

from typing import Annotated

import typer

from ekiden.cli.options import Host, KeysFile, Logged, Port

__all__ = ["ui"]


def ui(
    store: Annotated[str, typer.Option(help="sqlite:///FILE or postgresql://...", envvar="EKIDEN_STORE")],
    server: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:NAME]", help="A file with the Server: who its auth= lets in may sign in here."
        ),
    ] = None,
    call: Annotated[str, typer.Option(metavar="ID", help="Print the link of this call.")] = "",
    host: Host = "127.0.0.1",
    port: Port = 8002,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Let viewers cancel, wake, answer and run again.")
    ] = False,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show arguments, answers and results to who has the link.")
    ] = False,
    look_scope: Annotated[
        str, typer.Option(help="The scope that a viewer's token needs, with --server.")
    ] = "ekiden:look",
    values_scope: Annotated[
        str, typer.Option(help="The scope that shows values, with --server.")
    ] = "ekiden:values",
    act_scope: Annotated[
        str, typer.Option(help="The scope that allows actions, with --server and --allow-actions.")
    ] = "ekiden:act",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name, with its port, that the pages may be called by.")
    ] = None,
    https: Annotated[
        bool, typer.Option("--https", help="A proxy in front speaks HTTPS: cookies are for HTTPS only.")
    ] = False,
    sealed: Annotated[
        bool, typer.Option("--sealed", help="The server has seal_store=True: open and seal with its keys.")
    ] = False,
    keys_file: KeysFile = None,
    log_level: Logged = "warning",
) -> None:
    """Serve pages that show what happened to the calls and tasks of a store."""
    from ekiden.cli.operating.ui import UiOptions, serve_ui

    serve_ui(
        UiOptions(
            store=store,
            server=server,
            call=call,
            host=host,
            port=port,
            acts=allow_actions,
            values=show_values,
            scopes={"look": look_scope, "values": values_scope, "act": act_scope},
            hosts=allow_host or [],
            https=https,
            sealed=sealed,
            keys_file=keys_file,
            log_level=log_level,
        )
    )
