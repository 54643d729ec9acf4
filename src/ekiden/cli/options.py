"""The options that several commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Answer",
    "Answers",
    "Env",
    "Era",
    "Header",
    "Json",
    "KeysFile",
    "LogLevel",
    "MaxRounds",
    "MetricsPort",
    "Resume",
    "Root",
    "SaveTo",
    "Target",
    "Timeout",
    "Verbose",
    "Words",
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
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
Resume = Literal["replay", "parked"]

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
