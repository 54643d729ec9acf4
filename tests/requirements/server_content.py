"""Prompts, resources and completions of the servers under test."""

from typing import Any

from ekiden import Server


def add_content(server: Server) -> None:
    """Add prompts, resources and completions."""
    _prompts(server)
    _resources(server)
    _completions(server)


def _prompts(server: Server) -> None:
    @server.prompt
    def review(code: str, language: str = "python") -> str:
        return f"Review this {language}: {code}"

    @server.prompt
    def gallery() -> Any:
        import mcp_types as t  # here, because it takes a while, and most tests do not need it

        text = t.TextResourceContents(uri="memo://plain", mime_type="text/plain", text="plain")
        blob = t.BlobResourceContents(uri="memo://pixels", mime_type="image/png", blob="AAEC/w==")
        content = (
            t.TextContent(type="text", text="look"),
            t.ImageContent(type="image", data="AAEC/w==", mime_type="image/png"),
            t.AudioContent(type="audio", data="AAEC/w==", mime_type="audio/wav"),
            t.EmbeddedResource(type="resource", resource=text),
            t.EmbeddedResource(type="resource", resource=blob),
        )
        return [t.PromptMessage(role="user", content=item) for item in content]

    @server.prompt(name="naïve 工具")
    def unsafe_name() -> str:
        return "reached"

    @server.prompt
    def broken() -> str:
        raise RuntimeError("broken")


def _resources(server: Server) -> None:
    @server.resource("memo://watched", mime_type="text/plain")
    def watched() -> str:
        return "watched"

    @server.resource("memo://bytes", mime_type="application/octet-stream")
    def some_bytes() -> bytes:
        return bytes(range(256))

    @server.resource("memo://broken")
    def broken() -> str:
        raise RuntimeError("broken")

    @server.resource("memo://items/{key}")
    def item(key: str) -> str:
        return f"item {key}"


def _completions(server: Server) -> None:
    @server.completion(prompt="review", argument="language")
    def languages(value: str) -> list[str]:
        if value == "break":
            raise RuntimeError("broken")
        return [f"{value}{number}" for number in range(250)]

    @server.completion(resource="memo://items/{key}", argument="key")
    def keys(value: str) -> list[str]:
        return [value]
