"""A real browser for tests: Chromium's DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

PATH = shutil.which("chromium")
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync
    --disable-default-apps --disable-extensions --hide-scrollbars
    --disable-dev-shm-usage --remote-debugging-pipe
"""


class Browser:
    """One tab. `messages` are console errors and exceptions, `requests` addresses."""

    def __init__(self, profile: Path) -> None:
        assert PATH is not None
        to_them, self._out = os.pipe()
        self._in, from_them = os.pipe()
        # Chromium reads from handle 3 and writes to handle 4.
        script = f'exec "$0" "$@" 3<&{to_them} 4>&{from_them}'
        arguments = [PATH, *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", script, *arguments],
            pass_fds=(to_them, from_them),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_them)
        os.close(from_them)
        self._numbers = itertools.count(1)
        self._rest = b""
        self.session = None
        self.messages: list[str] = []
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; note events that arrive meanwhile."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def open(self, page: Path | str, width: int = 1280, *, dark: bool = False) -> None:
        """Load a file or an address in a window of this width."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.messages, self.requests = [], []
        self.call(
            "Page.navigate",
            url=page if isinstance(page, str) else page.resolve().as_uri(),
        )
        while self.run("document.readyState") != "complete":
            time.sleep(0.05)

    def run(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def move(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """A screenshot, of the whole page unless told otherwise."""
        options: dict[str, Any] = {"captureBeyondViewport": whole}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {**size, "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", **options)["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the browser."""
        os.close(self._out)
        os.close(self._in)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 2**16)
            if not part:
                raise RuntimeError("Chromium ended.")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.messages.append(str(params["exceptionDetails"]))
        elif event["method"] == "Runtime.consoleAPICalled":
            self.messages.append(str(params["args"]))
        elif event["method"] == "Log.entryAdded":
            self.messages.append(str(params["entry"]))
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
