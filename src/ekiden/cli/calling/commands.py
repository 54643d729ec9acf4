"""The commands of this folder and their options. A command imports what it needs when it runs."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekiden.cli.options import (
    Answer,
    Answers,
    Env,
    Era,
    Header,
    Json,
    MaxRounds,
    Root,
    SaveTo,
    Target,
    Timeout,
    Verbose,
    Words,
)

if TYPE_CHECKING:
    from ekiden.cli.calling.conversation import AskedOptions

__all__ = ["call", "prompt", "read", "tasks"]


def _asked(
    target: Target,
    answers: Answers = None,
    answer: Answer = None,
    root: Root = None,
    header: Header = None,
    env: Env = None,
    era: Era = "auto",
    timeout: Timeout = None,
    max_rounds: MaxRounds = 100,
    save_to: SaveTo = Path(),
    json: Json = False,
    verbose: Verbose = False,
) -> "AskedOptions":
    """What every command is told that may be asked something."""
    from ekiden.cli.calling.conversation import AskedOptions
    from ekiden.cli.targets import TargetOptions

    return AskedOptions(
        connection=TargetOptions(
            target=target, headers=header or [], env=env or [], era=era, timeout=timeout
        ),
        answers=answers,
        answer=answer or [],
        roots=root or [],
        max_rounds=max_rounds,
        save_to=save_to,
        json=json,
        verbose=verbose,
    )


def _may_be_asked(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the parameters of `_asked`, around its own. It gets their values as `options`."""
    shared = list(inspect.signature(_asked).parameters.values())
    _, *own = inspect.signature(command).parameters.values()
    parameters = [shared[0], *own, *shared[1:]]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        options = _asked(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        command(options, **given)

    # Where typer looks for them.
    run.__signature__ = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in parameters])  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@_may_be_asked
def call(
    options: "AskedOptions",
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Words = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="If the call becomes a task, print its id and do not wait.")
    ] = False,
) -> None:
    """Call a tool. What it asks is asked at the terminal."""
    from ekiden.cli.calling.tool import call as call_tool

    options = _with(options, fate="the call was cancelled", keeps_tasks=detach)
    raise typer.Exit(call_tool(options, tool, arguments or [], detach=detach))


@_may_be_asked
def prompt(
    options: "AskedOptions",
    name: Annotated[str, typer.Argument(help="The prompt's name.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Its arguments.")
    ] = None,
) -> None:
    """Get a prompt. What it asks is asked at the terminal."""
    from ekiden.cli.calling.prompt import prompt as get_prompt

    get_prompt(options, name, arguments or [])


@_may_be_asked
def read(
    options: "AskedOptions", uri: Annotated[str, typer.Argument(help="The URI of the resource.")]
) -> None:
    """Read a resource. What it asks is asked at the terminal."""
    from ekiden.cli.calling.resource import read as read_resource

    read_resource(options, uri)


def tasks(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] list|get|wait|answer|cancel [ID]",
            help="Which server, what to do, which task.",
        ),
    ],
    store: Annotated[
        str | None, typer.Option(help="Read this store instead of asking a server; needed for list.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="List only tasks in this state.")] = None,
    limit: Annotated[int, typer.Option(help="How many to list at most.", min=1)] = 100,
    answers: Answers = None,
    answer: Answer = None,
    root: Root = None,
    header: Header = None,
    env: Env = None,
    era: Era = "auto",
    timeout: Timeout = None,
    save_to: SaveTo = Path(),
    json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every state of the task.")] = False,
) -> None:
    """Look at tasks, wait for one, answer what it asks, or cancel it."""
    if store is not None:
        from ekiden.cli.stored_tasks import StoreOptions, manage_stored

        manage_stored(StoreOptions(store=store, state=state, limit=limit, json=json), words)
        return
    from ekiden.cli.calling.tasks import manage_task

    target, *action = words
    options = _asked(
        target,
        answers,
        answer,
        root,
        header,
        env,
        era,
        timeout,
        save_to=save_to,
        json=json,
        verbose=verbose,
    )
    raise typer.Exit(manage_task(_with(options, fate="the task goes on"), action))


def _with(options: "AskedOptions", **connection: Any) -> "AskedOptions":
    """The options, with changes to how the server is talked to."""
    import msgspec

    changed = msgspec.structs.replace(options.connection, **connection)
    return msgspec.structs.replace(options, connection=changed)
