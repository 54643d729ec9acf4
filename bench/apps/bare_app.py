"""The ceiling: what a Python server on this uvicorn could reach if MCP cost nothing.

It reads the whole body, parses the JSON, looks at the method and sends constant bytes. The bytes
and the headers are ekiden's own answers, recorded before: `--answers` names the JSON file.
"""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec

from bench.apps.serving import arguments, serve

Events = tuple[dict[str, Any], dict[str, Any]]


def main() -> None:
    parser = arguments()
    parser.add_argument("--answers", type=Path, required=True)
    options = parser.parse_args()
    serve(application(read_answers(options.answers)), options.port)


def read_answers(file: Path) -> dict[str, Events]:
    """The two ASGI events that answer each method."""
    return {method: _events(answer) for method, answer in json.loads(file.read_text()).items()}


def _events(answer: dict[str, Any]) -> Events:
    headers = [(name.encode(), value.encode()) for name, value in answer["headers"]]
    start = {"type": "http.response.start", "status": answer["status"], "headers": headers}
    return start, {"type": "http.response.body", "body": base64.b64decode(answer["body"])}


def application(answers: dict[str, Events]) -> Any:
    decode = msgspec.json.Decoder().decode

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        event = await receive()
        body = event["body"]
        while event["more_body"]:
            event = await receive()
            body += event["body"]
        start, end = answers[decode(body)["method"]]
        await send(start)
        await send(end)

    return bare


async def _lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


if __name__ == "__main__":
    main()
