from typing import Any

from mcp_types import CallToolResult, InputRequiredResult
from mcp_types import Tool as SdkTool
from pydantic import BaseModel

class ToolResult(BaseModel):
    content: list[Any]
    structured_content: dict[str, Any] | None
    meta: dict[str, Any] | None
    is_error: bool
    _raw_mcp_result: CallToolResult | None

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: dict[str, Any] | None = None,
        is_error: bool = False,
    ) -> None: ...

class InputRequiredToolResult(ToolResult):
    def __init__(self, input_required: InputRequiredResult) -> None: ...

class Tool(BaseModel):
    name: str
    title: str | None = None
    description: str | None = None
    icons: Any = None
    meta: dict[str, Any] | None = None
    parameters: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: Any = None

    def to_mcp_tool(self, **overrides: Any) -> SdkTool: ...
    async def run(self, arguments: dict[str, Any]) -> ToolResult: ...
