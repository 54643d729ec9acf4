"""`Image`, `Audio` and `File` as results of tools, prompts, resources and steps."""

import base64
from pathlib import Path
from typing import Any

import pytest

from ekiden import Audio, Context, File, Image, Server, UsageError
from tests.acceptance.driving import Client, new_server
from tests.serving import call_tool, listed_tool, result_of

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
WAV = b"RIFF\x00\x00\x00\x00WAVE\xff"
JPEG = b"\xff\xd8\xff\xe0\x00\xfe"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "data": b64(data), "mimeType": mime_type}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chart.png").write_bytes(PNG)
    (tmp_path / "bell.mp3").write_bytes(b"\x00")
    (tmp_path / "a b.csv").write_text("x,y\n1,2\n")
    (tmp_path / "picture").write_bytes(JPEG)
    return tmp_path


@pytest.mark.parametrize("annotated", [True, False])
async def test_a_tool_returns_pictures_sounds_and_files_alone_and_among_text(
    folder: Path, annotated: bool
) -> None:
    server = Server("s")

    @server.tool
    async def one() -> Image:
        return Image(folder / "chart.png")

    @server.tool
    async def many() -> list[str | Image | Audio | File]:
        return [
            "Here:",
            Image(str(folder / "picture")),
            Audio(data=WAV),
            Audio(folder / "bell.mp3"),
            File(folder / "a b.csv"),
        ]

    if not annotated:
        for tool in (one, many):
            server.remove_tool(tool.__name__)
            del tool.__annotations__["return"]
            server.add_tool(tool)
    assert await call_tool(server, "one") == {"content": [image(PNG, "image/png")]}
    assert await call_tool(server, "many") == {
        "content": [
            {"type": "text", "text": "Here:"},
            image(JPEG, "image/jpeg"),
            {"type": "audio", "data": b64(WAV), "mimeType": "audio/wav"},
            {"type": "audio", "data": b64(b"\x00"), "mimeType": "audio/mpeg"},
            {
                "type": "resource",
                "resource": {"uri": "file:///a%20b.csv", "mimeType": "text/csv", "text": "x,y\n1,2\n"},
            },
        ]
    }
    assert "outputSchema" not in await listed_tool(server, "one")
    assert "outputSchema" not in await listed_tool(server, "many")


@pytest.mark.parametrize(
    ("media", "mime_type"),
    [
        (Image(data=PNG), "image/png"),
        (Image(data=b"?", format="png"), "image/png"),
        (Image(data=b"?", format=".JPG"), "image/jpeg"),
        (Image(data=b"?", format="image/avif"), "image/avif"),
        (Image(data=b"<svg xmlns='x'/>"), "image/svg+xml"),
        (Audio(data=b"?", format="mp3"), "audio/mpeg"),
        (Audio(data=b"OggS"), "audio/ogg"),
        (File(data=b"%PDF", format="pdf"), "application/pdf"),
        (File(data=b"%PDF", name="a.pdf"), "application/pdf"),
        (File(data="words"), "text/plain"),
        (File(data=b"\xff\x00"), "application/octet-stream"),
        (File(data="{}", format="json"), "application/json"),
    ],
)
def test_the_type_is_given_or_found(media: Any, mime_type: str) -> None:
    assert media.mime_type == mime_type


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Image(), "Image needs either a path or data="),
        (lambda: Image("a.png", data=b""), "Image needs either a path or data="),
        (lambda: Image(data=b"?"), "cannot tell what its bytes are: give a format, as in format='png'"),
        (lambda: Image(data=WAV), "Image cannot be audio/wav: use the class that fits, or File"),
        (lambda: Image(data="text"), "takes bytes, not str"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_sent_says_what_to_write(make: Any, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert said in str(refused.value)


async def test_prompts_and_resources_take_them_too() -> None:
    server = Server("s")

    @server.prompt
    async def look() -> list[str | Image]:
        return ["What is this?", Image(data=PNG)]

    @server.resource("chart://now")
    async def chart() -> Image:
        return Image(data=PNG)

    @server.resource("rows://now")
    async def rows() -> list[File]:
        return [File(data="1,2", name="rows.csv")]

    messages = (await result_of(server, "prompts/get", {"name": "look"}))["messages"]
    assert [message["content"] for message in messages] == [
        {"type": "text", "text": "What is this?"},
        image(PNG, "image/png"),
    ]
    (read,) = (await result_of(server, "resources/read", {"uri": "chart://now"}))["contents"]
    assert read == {"uri": "chart://now", "mimeType": "image/png", "blob": b64(PNG)}
    (read,) = (await result_of(server, "resources/read", {"uri": "rows://now"}))["contents"]
    assert read == {"uri": "rows://now", "mimeType": "text/csv", "text": "1,2"}


drawn: list[str] = []


async def draw() -> Image:
    drawn.append("drawn")
    return Image(data=PNG)


async def write() -> File:
    drawn.append("written")
    return File(data=b"\xff\x00", name="a.bin")


async def test_a_step_can_return_one_and_it_comes_back_in_the_next_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> list[str | Image]:
        picture, file = await ctx.step(draw), await ctx.step(write)
        answer = await ctx.elicit("Show it?", bool)
        return [f"Here: {file.name} {file.data!r}", picture] if answer.data else ["No."]

    drawn.clear()
    result = await Client(server, lambda _key, _request: True).call_tool("tool")
    told = {"type": "text", "text": "Here: a.bin b'\\xff\\x00'"}
    assert result["content"] == [told, image(PNG, "image/png")]
    assert drawn == ["drawn", "written"]
