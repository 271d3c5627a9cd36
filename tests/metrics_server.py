"""A server that has nothing but metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any


@contextmanager
def serving(*pages: str | int) -> Iterator[str]:
    """The address of a server whose /metrics has each page once, the last one from then on; a number is a status."""
    left = list(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = left.pop(0) if len(left) > 1 else left[0]
            status = page if isinstance(page, int) else 200 if self.path == "/metrics" else 404
            self.send_response(status)
            self.end_headers()
            self.wfile.write(page.encode() if isinstance(page, str) else b"")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
