"""Loads the server of a Python file, or the gateway of a file of `mcpServers`."""

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ekiden.errors import UsageError

if TYPE_CHECKING:
    from ekiden.server.server import Server

__all__ = ["Carrying", "load_server", "split_spec", "start_lines", "trace_of"]


class Carrying(msgspec.Struct, frozen=True):
    """How a server of another SDK is carried."""

    resume: Literal["replay", "parked"] = "replay"
    strict: bool = False
    """Whether it is refused if something of it cannot be carried."""
    without_auth: bool = False
    """Whether it may be served without its auth provider."""
    without_middleware: bool = False
    """Whether it may be served without the middleware of its author."""


def split_spec(spec: str) -> tuple[Path, str | None]:
    """`FILE` or `FILE:NAME` as path and name."""
    file, colon, name = spec.rpartition(":")
    if colon and name.isidentifier() and not Path(spec).exists():
        return Path(file), name
    return Path(spec), None


def load_server(spec: str, carrying: Carrying | None = None) -> "Server":
    """The server of `FILE[:NAME]`: the one with that name, or else the only one in the file.

    It may be a FastMCP or an `MCPServer`: then it is the ekiden server that carries it.
    A JSON file is one of `mcpServers`: its server is a gateway.
    """
    path, name = split_spec(spec)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.suffix == ".json":
        from ekiden.gateway.front import gateway

        return gateway(path)
    from ekiden.server.server import Server

    with contextlib.ExitStack() as guards:
        for kind in (Server, *_foreign_kinds(path)):
            guards.enter_context(_no_running(kind))
        module = _import(path)
    found: dict[int, str] = {}
    for key, value in vars(module).items():
        if isinstance(value, Server) or _is_foreign(value):
            found.setdefault(id(value), key)  # One server may have several names.
    names = list(found.values())
    if name is not None:
        named: Any = getattr(module, name, None)
        if id(named) in found:
            return _as_ours(named, path, carrying)
        raise UsageError(f"{path} has no Server named {name!r}; it has {_listed(names)}")
    if len(names) != 1:
        hint = f"; choose one: {path}:{names[0]}" if names else ""
        raise UsageError(f"{path} has {_listed(names)}{hint}")
    return _as_ours(getattr(module, names[0]), path, carrying)


def _is_foreign(thing: object) -> bool:
    """Whether this is a server of another SDK. Most files have none, and import nothing for it."""
    if not ("mcp" in sys.modules or "fastmcp" in sys.modules):
        return False
    from ekiden.integrations.carried import is_foreign

    return is_foreign(thing)


def _as_ours(server: Any, path: Path, carrying: Carrying | None) -> "Server":
    from ekiden.server.server import Server

    if isinstance(server, Server):
        if carrying is not None and carrying != Carrying():
            raise UsageError(
                f"{path} has a Server of ekiden: --resume, --strict, --without-auth and --without-middleware "
                "are for servers of other SDKs; write @server.tool(resume=...) for single tools"
            )
        return server
    from ekiden.integrations.carried import carry

    how = carrying or Carrying()
    return carry(server, **msgspec.structs.asdict(how))


def start_lines(server: "Server") -> list[str]:
    """What the user must know at the start of a server of another SDK, one line for each."""
    lines = [f"not carried: {line}" for line in getattr(server, "left_behind", ())]
    if getattr(server, "runs_anew", False):
        lines.append(
            "a handler that asks a client of 2026-07-28 runs anew after each answer; "
            "with --resume parked it waits instead"
        )
    return lines


def _foreign_kinds(path: Path) -> list[Any]:
    """The classes of other SDKs whose servers a file may have; imported only if the file names them."""
    kinds: list[Any] = []
    text = path.read_text(errors="replace")
    for module, name in (("fastmcp", "FastMCP"), ("mcp.server.mcpserver", "MCPServer")):
        if f"{name}(" in text:
            with contextlib.suppress(
                ImportError, AttributeError
            ):  # The file itself will say what is missing.
                kinds.append(getattr(importlib.import_module(module), name))
    return kinds


@contextlib.contextmanager
def _no_running(kind: Any) -> Generator[None, None, None]:
    """Refuse `server.run()` while a file is loaded: it would serve before this command does."""

    def refuse(*_: object, **__: object) -> None:
        raise UsageError("it calls server.run() when it is loaded; put that under if __name__ == '__main__':")

    run = kind.run
    kind.run = refuse
    try:
        yield
    finally:
        kind.run = run


def _listed(names: list[str]) -> str:
    if not names:
        return "no Server object, and no FastMCP or MCPServer"
    return f"{len(names)} server{'s' if len(names) > 1 else ''} ({', '.join(names)})"


def _import(path: Path) -> ModuleType:
    """Import a file with its folder on the path, as `python FILE` does, or as a module of its package."""
    path = path.resolve()
    parts, root = [path.stem], path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        if len(parts) > 1:
            return importlib.import_module(".".join(parts))
        return _import_alone(path)
    except Exception as error:
        raise UsageError(f"{path.name} cannot be loaded: {_in_one_line(error, path)}") from error
    except SystemExit as error:
        raise UsageError(f"{path.name} cannot be loaded: it exits with {error.code!r}") from error


def _import_alone(path: Path) -> ModuleType:
    # A file may have the name of a module that is loaded already: `http.py`, `token.py`.
    name = path.stem if path.stem not in sys.modules else f"ekiden_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Annotations are looked up here.
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _in_one_line(error: Exception, path: Path) -> str:
    """An error of the user's file in one line, with the number of the line that raised it."""
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno} of {Path(error.filename or path).name}"
        return f"{type(error).__name__}: {error.msg} ({where})"
    said = " ".join(f"{type(error).__name__}: {error}".split())
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return f"{said} (line {lines[-1]})" if lines else said


def trace_of(error: BaseException) -> str:
    """The trace of what went wrong in the user's files, without the lines of those who loaded them."""
    trace = traceback.TracebackException.from_exception(error)
    own = [frame for frame in trace.stack if not frame.filename.startswith(("<frozen importlib", __file__))]
    trace.stack = traceback.StackSummary.from_list(own)
    return "".join(trace.format())
