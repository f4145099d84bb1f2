# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that shows a page, by the DevTools protocol over two pipes: no port is opened, and nothing outlives the test."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program():
    """Its path, or None."""
    return next((found for found in map(shutil.which, PROGRAMS) if found), None)


class Browser:
    """Use it in a `with`; its calls end within `timeout_s` of the beginning."""

    def __init__(self, timeout_s=150):
        self._end = time.monotonic() + timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="gigabar-browser-", ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # It reads commands from descriptor 3 and writes to 4. Root has no sandbox; the pages are ours.
        words = [program(), "--headless=new", "--hide-scrollbars", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
                 f"--user-data-dir={self._folder.name}", "about:blank"]
        line = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(["bash", "-c", line, "bash", str(commands), str(answers), *words], pass_fds=(commands, answers), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self._folder.name})
        os.close(commands)
        os.close(answers)
        self._buffer, self._number, self._session = b"", 0, None
        self.loaded = False

    def __enter__(self):
        target = next(each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self._call("Page.enable")
        return self

    def __exit__(self, *_):
        os.close(self._write)  # whereupon it ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._folder.cleanup()

    def _message(self):
        while b"\0" not in self._buffer:
            left = self._end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise AssertionError("the browser has not answered in time")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise AssertionError("the browser has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self.loaded |= message.get("method") == "Page.loadEventFired"
        return message

    def _call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **({"sessionId": self._session} if self._session else {})}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path):
        self.loaded = False
        self._call("Page.navigate", url=f"file://{path}")
        while not self.loaded:
            self._message()

    def look(self, width, scheme="light", media="screen"):
        """As wide as this, in `scheme` (light, dark), on `media` (screen, print)."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, script):
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"the script failed: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path, top=0, height=None):
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": min(height or size["height"], size["height"] - top), "scale": 1}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]))

    def print_to_pdf(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]))
