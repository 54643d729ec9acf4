"""The options that several commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "AccessLog",
    "AllowHost",
    "AllowOrigin",
    "Answer",
    "Answers",
    "EndpointPath",
    "Env",
    "Era",
    "Grace",
    "Header",
    "Host",
    "Json",
    "KeysFile",
    "Logged",
    "MaxConnections",
    "MaxConnectionsPerAddress",
    "MaxRounds",
    "MetricsPort",
    "Port",
    "Reload",
    "Resume",
    "Root",
    "RunTasks",
    "SaveTo",
    "ServerFile",
    "Stateless2025",
    "Stdio",
    "StoreUrl",
    "Strict",
    "Target",
    "Timeout",
    "TlsCert",
    "TlsKey",
    "TrustProxy",
    "Verbose",
    "WithoutAuth",
    "WithoutMiddleware",
    "Words",
    "Workers",
]

Target = Annotated[
    str, typer.Argument(help="A URL, a Python file (FILE[:NAME]), or a command that serves stdio.")
]
Header = Annotated[list[str] | None, typer.Option(help="'Name: value', sent with every HTTP request.")]
Env = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=VALUE]",
        help="A variable for a server on stdio, which gets few. Without a value: that of this command.",
    ),
]
Era = Annotated[
    Literal["auto", "modern", "legacy"], typer.Option(help="Which protocol to speak: find out, 2026, 2025.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
KeysFile = Annotated[
    Path | None, typer.Option(help="A file with one key per line; the first one seals, all of them open.")
]
MetricsPort = Annotated[
    int | None,
    typer.Option(help="Serve metrics to Prometheus at this port of localhost.", min=1, max=65535),
]
_LogLevel = Literal["debug", "info", "warning", "error", "critical"]

# Of the commands that serve

Stdio = Annotated[bool, typer.Option("--stdio", help="Serve stdin and stdout instead of HTTP.")]
Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(help="The port; 0 takes any.", min=0, max=65535)]
EndpointPath = Annotated[str, typer.Option(help="The path of the endpoint.")]
Workers = Annotated[int, typer.Option(help="How many processes serve.", min=1)]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="A host name besides localhost that clients may use; '*' allows any."),
]
AllowOrigin = Annotated[list[str] | None, typer.Option(help="A web origin whose pages may call the server.")]
TrustProxy = Annotated[
    list[str] | None,
    typer.Option("--trust-proxy", help="An address or network whose X-Forwarded-For is believed. Repeat it."),
]
Grace = Annotated[float, typer.Option(help="Seconds that running calls have to finish at the end.", min=0)]
Logged = Annotated[_LogLevel, typer.Option(help="What is logged to stderr.")]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Log a line for each response over HTTP.")]
TlsCert = Annotated[
    str | None,
    typer.Option(metavar="<path>", help="A certificate in PEM, with its chain: serve HTTPS instead of HTTP."),
]
TlsKey = Annotated[
    str | None,
    typer.Option(metavar="<path>", help="The key of that certificate, unless it is in the same file."),
]
MaxConnections = Annotated[
    int | None, typer.Option(help="Open connections of one worker; more are answered with 503.", min=1)
]
MaxConnectionsPerAddress = Annotated[int | None, typer.Option(help="The same, of one IP address.", min=1)]
Reload = Annotated[bool, typer.Option("--reload", help="Restart when a Python file changes.")]
RunTasks = Annotated[
    bool, typer.Option("--tasks/--no-tasks", help="Run tasks here, or only in `ekiden worker`.")
]
ServerFile = Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file with a Server.")]
Stateless2025 = Annotated[
    bool, typer.Option("--stateless-2025", help="Keep no sessions for clients of 2025.")
]
StoreUrl = Annotated[
    str | None, typer.Option(help="sqlite:///FILE or postgresql://..., if the server names none.")
]

# Of the commands that serve servers of other SDKs

Resume = Annotated[
    Literal["replay", "parked"],
    typer.Option(help="FastMCP, MCPServer: run a handler anew in every round, or let it wait."),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="FastMCP, MCPServer: refuse what cannot be carried whole.")
]
WithoutAuth = Annotated[
    bool, typer.Option("--without-auth", help="FastMCP, MCPServer: serve it without its auth provider.")
]
WithoutMiddleware = Annotated[
    bool,
    typer.Option("--without-middleware", help="FastMCP, MCPServer: serve it without its own middleware."),
]

# Of the commands that may be asked something

Words = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME=VALUE | NAME:=JSON]...", help="Its arguments.")
]
Answers = Annotated[
    Path | None, typer.Option(help="A JSON file of answers, by key or by a part of the message.")
]
Answer = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="One answer; the value may be @accept, @decline or @cancel."),
]
Root = Annotated[list[str] | None, typer.Option(help="A folder or URI that the server may ask for.")]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds for all of it, the server's start included.", min=0)
]
MaxRounds = Annotated[int, typer.Option(help="How often the server may ask.", min=0)]
SaveTo = Annotated[Path, typer.Option(help="The folder for images, sounds and other files.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every round.")]
