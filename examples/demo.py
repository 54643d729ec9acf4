"""The main job in one command: a server starts, its tools are listed, one is called over HTTP."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parent / "weather.py"


def main() -> None:
    port = free_port()
    print(f"$ python examples/weather.py --port {port}")
    process = subprocess.Popen([sys.executable, str(SERVER), "--port", str(port)])  # noqa: S603
    try:
        wait_until_listening(port, process)
        show(port, "server/discover", {})
        show(port, "tools/list", {})
        show(port, "tools/call", {"name": "forecast", "arguments": {"city": "Hakone", "days": 2}})
        show(port, "tools/call", {"name": "forecast", "arguments": {"city": "Hakone", "days": 30}})
    finally:
        process.terminate()
        process.wait(20)
    print("\nThe server was stopped. That is all there is to it.")


def free_port() -> int:
    for port in range(18000, 18100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise SystemExit("No free port between 18000 and 18100")


def wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("The server did not start")


def show(port: int, method: str, params: dict[str, Any]) -> None:
    """Send one request as protocol version 2026-07-28 wants it, and print both sides."""
    print(f"\n→ {method} {json.dumps(params) if params else ''}")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "demo", "version": "1.0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": params["name"]} if "name" in params else {}),
    }
    url = f"http://127.0.0.1:{port}/mcp"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        result = json.load(response)["result"]
    result.pop("_meta")
    print("← " + json.dumps(result, indent=2, ensure_ascii=False).replace("\n", "\n  "))


if __name__ == "__main__":
    main()
