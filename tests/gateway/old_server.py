"""A server of 2025 on stdio, without any SDK, that does what such servers may do with their one channel.

Its argument is a folder, in which its tools leave marks and wait for marks of the test.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
SECONDS = 60.0
"""After which nothing is waited for any more."""
_lock = threading.Lock()
_asked: dict[str, threading.Event] = {}


def send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(request: Any, said: str) -> None:
    send({"id": request, "result": {"content": [{"type": "text", "text": said}]}})


def ask(who: str) -> threading.Event:
    question = f"question of {who}"
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    answered = _asked[question] = threading.Event()
    params = {"message": f"Pay from the account of {who}?", "requestedSchema": schema}
    send({"id": question, "method": "elicitation/create", "params": params})
    return answered


def pay(request: Any, who: str) -> None:
    """Ask, and give up waiting when the test says so. The client is not told of that."""
    answered, deadline = ask(who), time.monotonic() + SECONDS
    while not answered.wait(0.01) and not (FOLDER / "give-up").exists() and time.monotonic() < deadline:
        pass
    answer(request, f"paid by {who}" if answered.is_set() else "nobody has answered")


def think(request: Any, who: str) -> None:
    """Have the model of the client answer, with more context than is ours to give."""
    answered = _asked["thought"] = threading.Event()
    params = {"messages": [], "maxTokens": 5, "includeContext": "allServers"}
    send({"id": "thought", "method": "sampling/createMessage", "params": params})
    answered.wait(SECONDS)
    answer(request, "thought")


def later(request: Any, who: str) -> None:
    """Log and ask when the call has its result already."""
    answer(request, "begun")
    send({"method": "notifications/message", "params": {"level": "error", "data": f"balance of {who}"}})
    ask(who).wait(SECONDS)
    (FOLDER / "answered").touch()


def slow(request: Any, who: str) -> None:
    """Run until the test says that it is enough."""
    (FOLDER / f"slow-{who}").touch()
    deadline = time.monotonic() + SECONDS
    while not (FOLDER / "enough").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    answer(request, "slept")


def process(request: Any, who: str) -> None:
    """Which process this is."""
    answer(request, str(os.getpid()))


def die(request: Any, who: str) -> None:
    """End in the middle of a call."""
    os._exit(3)


TOOLS = {tool.__name__: tool for tool in (pay, think, later, slow, process, die)}
SCHEMA = {"type": "object", "properties": {"who": {"type": "string"}}}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "logging": {}},
    "serverInfo": {"name": "old", "version": "1"},
}


def take(message: dict[str, Any]) -> None:
    method, request = message.get("method"), message.get("id")
    if method is None:
        if request in _asked:
            _asked[request].set()
    elif method == "initialize":
        send({"id": request, "result": HELLO})
    elif method == "tools/list":
        send({"id": request, "result": {"tools": [{"name": name, "inputSchema": SCHEMA} for name in TOOLS]}})
    elif method == "tools/call":
        params = message["params"]
        who = params.get("arguments", {}).get("who", "")
        threading.Thread(target=TOOLS[params["name"]], args=(request, who), daemon=True).start()
    elif method in ("ping", "logging/setLevel"):
        send({"id": request, "result": {}})
    elif request is not None:
        send({"id": request, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    only_once = FOLDER / "only-once"
    if only_once.exists() and (FOLDER / "started").exists():
        sys.exit("it runs already")
    (FOLDER / "started").touch()
    if (FOLDER / "silent").exists():
        time.sleep(SECONDS)
    for line in sys.stdin:
        take(json.loads(line))


main()
