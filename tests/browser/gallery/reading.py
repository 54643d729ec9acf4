"""The site of the documentation: its first page, and a how-to with pictures."""

import functools
import http.server
import threading
from typing import Any

from scripts.ports import free_port
from scripts.site.__main__ import build
from tests.browser.gallery.camera import Camera


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def reading(camera: Camera) -> None:
    """All pictures of the site."""
    handler = functools.partial(_Quiet, directory=build())
    with http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for name, path in (("home", ""), ("ask-people", "how-to/ask-people/"), ("dev", "how-to/dev/")):
                camera.open(f"http://127.0.0.1:{server.server_port}/0.1/{path}", "ekiden")
                camera.take(f"site-{name}")
        finally:
            server.shutdown()
            thread.join(10)
