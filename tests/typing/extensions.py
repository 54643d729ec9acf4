"""What a type checker sees of extensions and skills. Checked by pyright, never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, assert_type

from mcp_types import Resource
from pydantic import BaseModel

from ekiden import CallNext, Client, Complete, Context, Outcome, Request, Server, ServerCard
from ekiden.extensions import (
    ClientExtension,
    ClientRequest,
    Extension,
    ExtensionContext,
    ExtensionResult,
    Interrupted,
    LoadedSkill,
    SkillEntry,
    Skills,
)


@asynccontextmanager
async def lifespan() -> AsyncGenerator[int, None]:
    yield 1


class Found(BaseModel):
    n: int


extension = Extension(
    "com.example/x", settings={"a": 1}, result_types=["x"], sends=["n/x"], lifespan=lifespan
)


@extension.method("x/find", scopes=["x"])
async def find(text: str, ctx: ExtensionContext) -> Found:
    await ctx.notify("n/x", {"text": text})
    assert_type(ctx.client_settings, dict[str, Any] | None)
    return Found(n=1)


@extension.intercept
async def around(request: Request, call_next: CallNext) -> Outcome:
    return await call_next(request)


@extension.intercept(methods=["tools/call"])
async def instead(request: Request, call_next: CallNext) -> Outcome:
    return ExtensionResult({"n": 1}, result_type="x")


@extension.notification("n/y")
async def heard(text: str) -> None: ...


client_extension = ClientExtension("com.example/x", lifespan=lifespan)


@client_extension.result("x")
async def finish(call: Interrupted) -> dict[str, Any]:
    return await call.request("x/find", {"text": call.name})


@client_extension.intercept
async def send(request: ClientRequest, send_on: Any) -> dict[str, Any]:
    return await send_on(request)


@client_extension.result("y")  # pyright: ignore[reportArgumentType]
async def finish_wrongly(call: Interrupted) -> int:
    return 1


skills = Skills("skills")
skills.add("a/b", description="x", instructions="x", files={"a.md": "x", "b": b"x"}, license="MIT")


@skills.generate("a/c", description="x")
async def generated() -> str:
    return "x"


card = ServerCard(name="com.example/x", description="x")
server = Server("x", extensions=[extension, skills], card=card)
Server("x", extensions=[client_extension])  # pyright: ignore[reportArgumentType]


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("How many?", int, meta={"ui": {"resourceUri": "ui://x"}})
    return str(answer)


async def use() -> None:
    async with Client("x", extensions=[client_extension]) as client:
        assert_type(await client.request("x/find"), dict[str, Any])
        assert_type(await client.request("x/find", {"text": "a"}, result_type=Found), Found)
        await client.notify("n/y", {"text": "a"})
        assert_type(client.server_extension("com.example/x"), dict[str, Any] | None)
        assert_type(await client.list_skills(), list[SkillEntry])
        assert_type(await client.get_skill("x"), SkillEntry)
        loaded = await client.load_skill("x")
        assert_type(loaded, LoadedSkill)
        assert_type(await loaded.read("a.md"), bytes)
        assert_type(await client.read_directory("x"), list[Resource])
    Complete({})
