"""The server of the page: four files of ours, the metrics as JSON, a clip."""

from __future__ import annotations

import errno
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ecop import runs
from ecop.config import algorithm_name
from ecop.errors import UserError
from ecop.live.clips import Clips
from ecop.live.follow import Follower

HERE = Path(__file__).parent
OURS = "127.0.0.1"
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src "
    "'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Live:
    """What the page shows of a run folder."""

    def __init__(self, path: Path, *, trust: bool) -> None:
        document = runs.read_document(path)
        config = runs.read_config(path)
        self.path = path
        self.about = {
            "title": f"{algorithm_name(config.algorithm)} on {config.task}",
            "folder": str(path),
            "costs": document.get("costs", []),
        }
        self.follower = Follower(path)
        self.clips = Clips(path, trust=trust)
        self.lock = threading.Lock()
        self.curves: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        with self.lock:
            if self.follower.update() or self.curves is None:
                self.curves = self.follower.curves()
            curves = self.curves
        try:
            age = max(time.time() - self.follower.file.stat().st_mtime, 0.0)
        except OSError:
            age = None
        clip = {"iteration": self.clips.iteration, "note": self.clips.note}
        return {**self.about, **curves, "age": age, "clip": clip}


class Server(ThreadingHTTPServer):
    """Serves a run on the loopback interface."""

    def __init__(self, live: Live, port: int) -> None:
        self.live = live
        try:
            super().__init__((OURS, port), Handler)
        except (OSError, OverflowError) as error:
            taken = getattr(error, "errno", None) == errno.EADDRINUSE
            why = "is taken" if taken else f"cannot be used ({error})"
            raise UserError(
                f"Port {port} {why}; choose another: --port 0 takes a free one."
            ) from None
        self.names = {f"{host}:{self.server_port}" for host in (OURS, "localhost")}

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{OURS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone; nobody is there to be told."""


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD, to requests that name this machine."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "ecop"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer."""
        if self.headers.get("Host") not in self.server.names:
            self.answer(421, b"Ask for this page by its own address.", "text/plain")
            return
        path = self.path.partition("?")[0]
        if path in FILES:
            name, kind = FILES[path]
            self.answer(200, (HERE / name).read_bytes(), kind)
        elif path == "/data.json":
            try:
                data = json.dumps(self.server.live.document(), allow_nan=False)
            except UserError as error:
                self.answer(503, str(error).encode(), "text/plain; charset=utf-8")
                return
            self.answer(200, data.encode(), "application/json")
        elif path == "/clip.gif" and self.server.live.clips.data:
            self.answer(200, self.server.live.clips.data, "image/gif")
        elif path == "/favicon.ico":  # browsers ask for it by themselves
            self.answer(200, b"", "image/x-icon")
        else:
            self.answer(404, b"There is no such page.", "text/plain")

    do_HEAD = do_GET

    def answer(self, code: int, data: bytes, kind: str) -> None:
        """Send it."""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def end_headers(self) -> None:
        """Add what a browser may do with the answer, also where it is an error."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
