"""`ekiden dev` in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scripts.ports import free_port

PATIENCE = 60.0

SERVER = '''
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ekiden import Context, Server

server = Server("shop", version="1.2")


class Address(BaseModel):
    """Where it goes."""

    city: Annotated[str, Field(title="Town")]
    floor: Annotated[int, Field(ge=0)] | None = None


@server.tool
async def refund(ctx: Context, order: Annotated[str, Field(description="The number on the receipt.")]) -> str:
    """Refund an order, after asking how."""
    await ctx.info(f"looking up {order}")
    await ctx.progress(1, 3, "looking up")
    how = await ctx.elicit(f"Refund {order} how?", Literal["card", "voucher"])
    pieces = await ctx.elicit("How many pieces?", Annotated[int, Field(ge=1, le=10)])
    return f"{pieces.data} of {order} by {how.data}"


@server.tool
async def every(
    text: Annotated[str, Field(title="A text", description="Any letters <b>at all</b>.")],
    essay: Annotated[str, Field(max_length=2000)],
    code: Annotated[str, Field(pattern="^[A-Z]{3}$")],
    mail: Annotated[str, Field(json_schema_extra={"format": "email"})],
    page: Annotated[str, Field(json_schema_extra={"format": "uri"})],
    day: date,
    moment: datetime,
    count: Annotated[int, Field(ge=1, le=9)],
    price: float,
    sure: bool,
    size: Literal["S", "M", "L"],
    color: Literal["red", "green", "blue", "white", "black", "gray", "pink"],
    toppings: list[Literal["nori", "egg"]],
    to: Address,
    tags: list[str],
    again: Address | None = None,
    nothing: int | None = None,
    left: str = "a default",
) -> dict[str, Any]:
    """One field of every kind."""
    told = {"text": text, "essay": essay, "code": code, "mail": mail, "page": page, "day": day.isoformat()}
    told |= {"moment": moment.isoformat(), "count": count, "price": price, "sure": sure, "size": size}
    told |= {"color": color, "toppings": toppings, "to": to.model_dump(), "tags": tags, "again": again}
    return told | {"nothing": nothing, "left": left}


@server.prompt
def greet(name: str) -> str:
    """Greets somebody."""
    return f"Say hello to {name}"


@server.resource("shop://orders/{number}")
def order(number: str) -> str:
    """One order."""
    return f"order {number}"
'''


class Developing:
    """A running `ekiden dev`."""

    def __init__(self, file: Path, log: Path, process: "subprocess.Popen[bytes]") -> None:
        self.file = file
        self._log = log
        self._process = process
        self.link = self.wait_for(r"the page is at (\S+)")
        self.wait_for(r"(is served at)")
        self.origin = self.link.partition("/?")[0]

    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str) -> str:
        """What the command has said that matches, once it has."""

        def found() -> str | None:
            assert self._process.poll() is None, self.said()
            match = re.search(pattern, self.said())
            return None if match is None else match[1]

        return until(found)


@contextmanager
def developing(
    folder: Path, *options: str, server: str = SERVER, variables: dict[str, str] | None = None
) -> Generator[Developing, None, None]:
    """`ekiden dev` with this server."""
    file, log = folder / "server.py", folder / "log.txt"
    file.write_text(server)
    command = [
        sys.executable,
        "-m",
        "ekiden.cli",
        "dev",
        "server.py",
        "--no-open",
        "--port",
        str(free_port()),
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EKIDEN_")}
    environment = {**kept, **(variables or {})}
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*command, "--page-port", str(free_port()), *options], cwd=folder, stderr=written, env=environment
        )
    try:
        yield Developing(file, log, process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert code == 130, log.read_text()


def until(look: Callable[[], Any], passing: tuple[type[Exception], ...] = ()) -> Any:
    """What `look` finds, once it finds something. It may raise what is `passing` until then."""
    end = time.monotonic() + PATIENCE
    while True:
        with suppress(*passing):
            if found := look():
                return found
        assert time.monotonic() < end, "it was not there in time"
        time.sleep(0.05)
