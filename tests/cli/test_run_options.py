"""`ekiden run` over TLS and with a cap on connections, and `Server.run` with the same."""

import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from scripts.ports import free_port
from tests.serving import call, headers_for

from .certificates import make_certificate
from .driving import SHOP, ekiden, eventually, running

MESSAGE = call("hello")


def post(url: str, certificate: Path) -> httpx2.Response:
    trusted = ssl.create_default_context(cafile=str(certificate))
    with httpx2.Client(verify=trusted, timeout=20, trust_env=False) as client:
        return client.post(url, json=MESSAGE, headers=headers_for(MESSAGE))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_https_is_served_by_one_process_and_by_workers(tmp_path: Path, workers: str) -> None:
    cert, key = make_certificate(tmp_path)
    port = free_port()
    options = ["--port", str(port), "--workers", workers, "--tls-cert", str(cert), "--tls-key", str(key)]
    with running(tmp_path / "log", "run", SHOP, *options) as server:
        server.await_saying(f"is served at https://127.0.0.1:{port}/mcp")
        response = post(f"https://127.0.0.1:{port}/mcp", cert)
        assert "Unknown tool: hello" in response.json()["error"]["message"]


def test_a_server_serves_https_by_itself(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    port = free_port()
    options = f"port={port}, tls_cert={str(cert)!r}, tls_key={str(key)!r}"
    script = f"from ekiden import Server; Server('s').run({options})"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: _listens(port), "it listens")
            response = post(f"https://127.0.0.1:{port}/mcp", cert)
            assert response.json()["error"]["code"] == -32601, "it has no tools"
            with socket.create_connection(("127.0.0.1", port), timeout=20) as silent:
                assert silent.recv(1) == b"", "who begins no handshake is not waited for"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_certificate_that_cannot_be_used_is_said_in_a_sentence(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path, password=b"secret")
    (tmp_path / "other").mkdir()
    _, other = make_certificate(tmp_path / "other")
    tries = {
        (str(cert), str(tmp_path / "nowhere")): "cannot be used",
        (str(cert), str(other)): "cannot be used",
        (str(cert), str(key)): "the TLS key is encrypted",
    }
    for (one, two), words in tries.items():
        done = ekiden("run", SHOP, "--port", "0", "--tls-cert", one, "--tls-key", two)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    alone = ekiden("run", SHOP, "--port", "0", "--tls-key", str(key))
    assert (alone.returncode, "needs its certificate" in alone.stderr) == (2, True), alone.stderr


def test_a_worker_takes_only_so_many_connections(tmp_path: Path) -> None:
    port = free_port()
    options = ["--port", str(port), "--max-connections", "2", "--max-connections-per-address", "2"]
    with running(tmp_path / "log", "run", SHOP, *options) as server, ExitStack() as stack:
        server.await_saying("is served at")
        for _ in range(2):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        refused = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        assert refused.recv(100).startswith(b"HTTP/1.1 503 ")


def test_options_of_http_do_not_go_with_stdio(tmp_path: Path) -> None:
    done = ekiden("run", SHOP, "--stdio", "--max-connections", "2")
    assert (done.returncode, "about HTTP" in done.stderr) == (2, True), done.stderr
