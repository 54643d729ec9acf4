from typing import Any

from mcp_types import InputRequiredResult, ReadResourceResult
from mcp_types import Resource as SdkResource
from pydantic import BaseModel

class ResourceContent(BaseModel):
    def __init__(self, content: Any, mime_type: str | None = None, meta: Any = None) -> None: ...

class ResourceResult(BaseModel):
    contents: list[ResourceContent]
    meta: dict[str, Any] | None

    def __init__(self, contents: Any, meta: dict[str, Any] | None = None) -> None: ...
    def to_mcp_result(self, uri: Any) -> ReadResourceResult: ...

class InputRequiredResourceResult(ResourceResult):
    def __init__(self, input_required: InputRequiredResult) -> None: ...

class Resource(BaseModel):
    uri: Any
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str = ...
    annotations: Any = None
    icons: Any = None
    meta: dict[str, Any] | None = None

    def to_mcp_resource(self, **overrides: Any) -> SdkResource: ...
    async def read(self) -> Any: ...
