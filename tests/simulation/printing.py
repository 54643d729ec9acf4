"""A program as the Python that an author would have written."""

from collections.abc import Iterator

from tests.simulation.acts import ACTS
from tests.simulation.programs import Node, Program

__all__ = ["expression_of", "python_of"]

_SCOPES = {
    "timeout": "async with asyncio.timeout({0}):",
    "nested": "async with asyncio.timeout({0} + 0.2), asyncio.timeout({0}):",
    "move_on": "with anyio.move_on_after({0}):",
    "fail_after": "with anyio.fail_after({0}):",
}
_CAUGHT = ("timeout", "nested", "fail_after")
_JOINS = {
    "gather": "await asyncio.gather({0})",
    "lock": "await asyncio.gather({0})  # each under one asyncio.Lock",
    "first": "await asyncio.wait([{0}], return_when=FIRST_COMPLETED)  # a step with the winners",
    "each": "for next_one in asyncio.as_completed([{0}]): ...  # a step with each as it comes",
    "queue": "for _ in range(n): await queue.get()  # {0} put into it; a step with each as it comes",
}


def python_of(program: Program) -> str:
    """The whole handler; numbers at the end of lines are the labels of traces."""
    lines = ["@server.tool", "async def tool(ctx: Context) -> str:", "    seen = []"]
    return "\n".join([*lines, *_indented(_spelled(program.body)), "    return json.dumps(seen)"])


def expression_of(node: Node) -> str:
    """A node as the expression that makes it, to be kept as a test."""
    more = [f"{name}={value!r}" for name, value in node.more.items() if value or name in ("seconds", "value")]
    inner = [expression_of(part) for part in node.parts]
    return f"n({', '.join([repr(node.kind), str(node.number), *inner, *more])})"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield f"    {line}"


def _block(node: Node) -> Iterator[str]:
    return _indented(_spelled(node))


def _spelled(node: Node) -> Iterator[str]:
    match node.kind:
        case "seq" | "helper":
            for part in node.parts:
                yield from _spelled(part)
        case "loop":
            yield f"for turn in range({node['times']}):  # {node.number}"
            yield from _block(node.parts[0])
        case "choice":
            yield f"if (await ctx.elicit(f'{node.number} {{mix(seen)}}', bool)).data:  # {node.number}"
            yield from _block(node.parts[0])
            yield "else:"
            yield from _block(node.parts[1])
        case "attempt":
            yield "try:"
            yield from _block(node.parts[0])
            yield f"except Exception as error: seen.append(error)  # {node.number}"
        case "finally":
            yield "try:"
            yield from _block(node.parts[0])
            yield "finally:"
            yield from _block(node.parts[1])
        case "scope":
            yield from _scope(node)
        case "group" | "failing" | "gather" | "lock" | "first" | "each" | "queue":
            yield from _branches(node)
        case _:
            yield f"{_leaf(node)}  # {node.number}"


def _scope(node: Node) -> Iterator[str]:
    caught = node["style"] in _CAUGHT
    opening = _SCOPES[node["style"]].format(node["seconds"])
    if not caught:
        yield f"{opening}  # {node.number}"
        yield from _block(node.parts[0])
        return
    yield "try:"
    yield f"    {opening}  # {node.number}"
    yield from _indented(_block(node.parts[0]))
    yield "except TimeoutError: seen.append('timed out')"


def _branches(node: Node) -> Iterator[str]:
    names = [f"branch_{node.number}_{n}" for n in range(len(node.parts))]
    for name, part in zip(names, node.parts, strict=True):
        yield f"async def {name}():"
        yield from _block(part)
    if node.kind in ("group", "failing"):
        yield "try:"
        yield f"    async with asyncio.TaskGroup() as group:  # {node.number}"
        for name in names:
            yield f"        group.create_task({name}())"
        yield "except* Exception as errors: seen.append(errors)"
    else:
        yield _JOINS[node.kind].format(", ".join(f"{name}()" for name in names)) + f"  # {node.number}"


def _leaf(node: Node) -> str:  # noqa: C901  one line for each kind
    match node.kind:
        case "ask":
            key = f", key='k{node.number}'" if node["keyed"] else ""
            question = f"f'{node.number} {{mix(seen)}} {{drawn}}'"
            return {
                "sample": f"seen.append(await ctx.sample({question}, max_tokens=9{key}))",
                "roots": f"seen.append(await ctx.list_roots({key[2:]}))",
                "url": f"seen.append(await ctx.elicit_url({question}, 'https://example.com/'{key}))",
            }.get(node["form"], f"seen.append(await ctx.elicit({question}, {node['form']}{key}))")
        case "step":
            return _step(node)
        case "draw":
            return f"drawn = ctx.{node['what']}()"
        case "sleep":
            return f"await ctx.sleep({node['seconds']})"
        case "nap":
            return f"await asyncio.sleep({node['seconds']})"
        case "pass":
            return "await asyncio.sleep(0)"
        case "checkpoint" | "background":
            return f"await ctx.{node.kind}()"
        case "progress":
            return f"await ctx.progress(..., message='{node.number}')"
        case "afterwards":
            return f"ctx.on_complete(plain, ...){'  # which raises' if node['fails'] else ''}"
        case "mutate":
            return "last_dict['items'].append('more')"
        case "twin":
            return f"await ctx.step(twins.plain, '{node['of']}', mix(seen), drawn)  # of another module"
        case "consume":
            return "await ctx.step(consume, basket)  # which changes its argument"
        case _:
            return "raise ProgramError"


def _step(node: Node) -> str:
    functions = ACTS.get(node["value"])
    name = (
        functions[bool(node["thread"])].__name__
        if functions
        else "plain" + "_in_thread" * bool(node["thread"])
    )
    name = "audit" if node["renamed"] else name
    arguments = f"'{node.number}', mix(seen){' + 1' if node['changed'] else ''}, drawn"
    extra = f", key='k{node.number}'" if node["keyed"] else ""
    extra += ", retry=Retry(attempts=3)" if node["value"] == "retried" else ""
    about = f"{node['value']}, {node['seconds']} s"
    about += f", {node['on_cut']} when cut" if node["on_cut"] else ""
    about += ", raises to its caller" if node["uncaught"] else ""
    return f"seen.append(await ctx.step({name}, {arguments}{extra}))  # {about}"
