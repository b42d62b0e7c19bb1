"""A real Chromium, driven through its debugging protocol: just enough to load a page, click, type and look."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
SECONDS_MAX = 30.0


def program() -> str:
    """The browser's path; skips the test, saying what to do, where there is none."""
    given = os.environ.get("CHROMIUM")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None or shutil.which(found) is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium-headless-shell, or set CHROMIUM")
    return found


class Browser:
    """One process with one tab. Events are kept until asked for."""

    def __init__(self, folder: Path) -> None:
        path = program()  # skips before anything is there to be closed
        self._loop = asyncio.new_event_loop()
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [
                path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,  # what a distribution calls by this name may be a script that waits for the browser
        )  # fmt: skip
        assert self._process.stderr is not None
        address = ""
        for line in self._process.stderr:  # ends when the browser does
            if "listening on ws://" in line:
                address = line.split("listening on ")[1].strip()
                break
        assert address, "Chromium ended before it listened"
        # What it says further is read away, or it would wait for room to say more.
        self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()
        self._loop.run_until_complete(self._open(address))
        target = self.call("Target.createTarget", {"url": "about:blank"}, tab=False)["targetId"]
        self._tab = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, tab=False)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", {"enabled": True})

    async def _open(self, address: str) -> None:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(address, max_msg_size=1 << 28)

    def close(self) -> None:
        """End the browser and all that belongs to it."""

        async def end() -> None:
            await self._socket.close()
            await self._session.close()

        self.call("Browser.close", tab=False)
        self._loop.run_until_complete(end())
        self._loop.close()
        try:
            self._process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def call(
        self, method: str, parameters: dict[str, Any] | None = None, *, tab: bool = True
    ) -> dict[str, Any]:
        """One command's result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters or {}}
        if tab:
            message["sessionId"] = self._tab
        answer = self._loop.run_until_complete(self._answer(message))
        assert "error" not in answer, answer
        return dict(answer["result"])

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        await self._socket.send_str(json.dumps(message))
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                found = json.loads((await self._socket.receive()).data)
                if found.get("id") == message["id"]:
                    return dict(found)
                self.events.append(found)

    def wait(self, event: str) -> dict[str, Any]:
        """The next event of this name, or one that came already; it and all before it are forgotten."""

        async def come() -> dict[str, Any]:
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    found = json.loads((await self._socket.receive()).data)
                    self.events.append(found)
                    if found.get("method") == event:
                        return dict(found["params"])

        for known in self.events:
            if known.get("method") == event:
                self.events.remove(known)
                return dict(known["params"])
        return self._loop.run_until_complete(come())

    def load(self, path: Path, fragment: str = "", width: int = 1280, height: int = 800) -> None:
        """Load a file and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})  # fmt: skip
        self._go("about:blank", {"load"})  # else another fragment of the same page would load nothing
        self.events.clear()
        # Before something is painted a browser drops what a mouse or a keyboard does.
        self._go(path.as_uri() + fragment, {"load", "firstContentfulPaint"})

    def _go(self, address: str, until: set[str]) -> None:
        loader = self.call("Page.navigate", {"url": address})["loaderId"]
        while until:
            event = self.wait("Page.lifecycleEvent")
            if event["loaderId"] == loader:
                until = until - {event["name"]}

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True}
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element, as a person would."""
        place = self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center', "
            "behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent",
                      {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1})  # fmt: skip

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", {"text": text})

    def press(self, key: str) -> None:
        """Press one key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key})

    def complaints(self) -> list[str]:
        """What the browser logged, exceptions, and every request but those for the page itself."""
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        out = []
        for event in self.events:
            method, found = event.get("method"), event.get("params", {})
            if method == "Log.entryAdded":
                out.append(str(found["entry"]["text"]))
            elif method == "Runtime.exceptionThrown":
                out.append(str(found["exceptionDetails"]))
            elif method == "Network.requestWillBeSent" and found["type"] != "Document":
                out.append(f"request for {found['request']['url'][:100]}")
        return out
