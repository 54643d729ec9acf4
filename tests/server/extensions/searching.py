"""What the tests of extensions share: an extension with one method, and a server that has it."""

from typing import Any

from ekiden import Server
from ekiden.extensions import Extension

NAME = "com.example/search"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
DECLARED = {CAPABILITIES: {"extensions": {NAME: {"fuzzy": True}}}}


def search(**options: Any) -> Extension:
    """An extension with one method."""
    extension = Extension(NAME, **options)

    @extension.method("search/find")
    async def find(text: str, most: int = 10) -> dict[str, Any]:
        return {"found": [text] * most}

    return extension


def serving(*extensions: Extension, **options: Any) -> Server:
    return Server("s", extensions=extensions, **options)
