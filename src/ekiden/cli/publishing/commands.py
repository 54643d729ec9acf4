"""The commands of this folder and their options. A command imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["bundle", "publish"]

Spec = Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file with a Server.")]
Fixed = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME[=VALUE]", help="A variable that everybody gets.")
]
Asked = Annotated[
    list[str] | None, typer.Option("--secret", metavar="NAME", help="A variable that each user is asked for.")
]


def bundle(
    server: Spec,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")] = None,
    kind: Annotated[
        Literal["uv", "python"],
        typer.Option("--type", help="uv: the host installs what it needs. python: it is all in the file."),
    ] = "uv",
    author: Annotated[str | None, typer.Option(help="Who wrote it; else as pyproject.toml says.")] = None,
    icon: Annotated[
        str | None, typer.Option(help="A PNG file of the project, or its https:// address.")
    ] = None,
    env: Fixed = None,
    secret: Asked = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the manifest and the names of the files.")
    ] = False,
) -> None:
    """Make an MCPB file, which hosts install with a click."""
    import msgspec

    from ekiden.cli.arguments import variables
    from ekiden.cli.publishing.archive import archived, packed, sources_of
    from ekiden.cli.publishing.manifest import manifest_of
    from ekiden.cli.publishing.project import facts_of
    from ekiden.errors import UsageError
    from ekiden.wire.json import encode

    facts = facts_of(server)
    sources = sources_of(facts)
    if icon is not None and not icon.startswith("https://") and icon not in sources:
        raise UsageError(f"--icon {icon}: there is no such file among those of the bundle")
    manifest = manifest_of(
        facts, kind, author=author, env=variables(env or []), secrets=secret or [], icon=icon
    )
    if dry_run:
        typer.echo(msgspec.json.format(encode(manifest), indent=2).decode())
        typer.echo("\n".join(sorted(sources)))
        return
    data = archived(manifest, packed(facts, kind, sources))
    file = output or Path(f"{facts.name}-{facts.version}.mcpb")
    file.write_bytes(data)
    platforms = ", ".join(manifest["compatibility"]["platforms"])
    count = f"{len(sources)} file{'s' if len(sources) != 1 else ''}"
    typer.echo(f"{file}: {count} of yours, {len(data):,} bytes, for {platforms}")


def publish(
    server: Spec,
    name: Annotated[
        str | None, typer.Option(help="io.github.you/server; else as `mcp-name:` in the README says.")
    ] = None,
    description: Annotated[
        str | None, typer.Option(help="At most 100 letters; else as pyproject.toml says.")
    ] = None,
    remote: Annotated[
        list[str] | None, typer.Option(help="The address of a server that everybody may use.")
    ] = None,
    mcpb: Annotated[Path | None, typer.Option("--bundle", help="An MCPB file that will be released.")] = None,
    mcpb_url: Annotated[str | None, typer.Option("--bundle-url", help="Where it will be released.")] = None,
    env: Fixed = None,
    secret: Asked = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("server.json"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print it, and write nothing.")] = False,
) -> None:
    """Write the server.json of the MCP Registry. Nothing is sent: the registry's own tool does that."""
    import msgspec

    from ekiden.cli.arguments import variables
    from ekiden.cli.publishing.project import facts_of
    from ekiden.cli.publishing.server_json import server_json
    from ekiden.wire.json import encode

    entry = server_json(
        facts_of(server),
        name=name,
        description=description,
        remotes=remote or [],
        bundle=mcpb,
        bundle_url=mcpb_url,
        env=variables(env or []),
        secrets=secret or [],
    )
    text = msgspec.json.format(encode(entry), indent=2).decode()
    if dry_run:
        typer.echo(text)
        return
    output.write_text(f"{text}\n")
    typer.echo(
        f"{output} is written, and nothing was sent: that is `mcp-publisher login`, `mcp-publisher publish`."
    )
