"""A real nginx, for as long as a test needs it.

The system has one, or that of the Debian package is used, which `make .peers/nginx/.ready` unpacks
without installing it.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 10.0

_UNPACKED = Path(__file__).parents[1] / ".peers" / "nginx" / "usr" / "sbin" / "nginx"


def binary() -> Path:
    """The program; an error that says how to get it if there is none."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if found is not None:
        return Path(found)
    if not _UNPACKED.exists():
        raise FileNotFoundError("there is no nginx: install it, or run `make .peers/nginx/.ready`")
    return _UNPACKED


@contextmanager
def running_nginx(configuration: str, folder: Path, port: int) -> Generator[None, None, None]:
    """Run nginx with this configuration, which listens on `port` of 127.0.0.1. Its files are in `folder`."""
    temporary = "".join(
        f"    {name}_temp_path {folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = configuration.replace("http {\n", f"http {{\n    access_log off;\n{temporary}", 1)
    own = f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
    file = folder / "nginx.conf"
    file.write_text(own + configuration)
    process = subprocess.Popen([binary(), "-c", file, "-p", folder, "-e", folder / "error.log"])
    try:
        _await_port(process, port, folder / "error.log")
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _await_port(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"nginx has ended: {log.read_text() if log.exists() else ''}")
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError("nginx does not listen")
