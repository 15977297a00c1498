"""A headless Chromium (Debian's), driven over the DevTools protocol through a pipe: no port, no driver, no library.

    with Browser(folder) as browser:
        page = browser.open(cluster.url + "/dashboard")
        page.wait("document.title == 'Tandem'")

A page keeps what its console said and what it asked the network for.
"""

import base64
import json
import os
import shutil
import subprocess

import pytest

from tests.e2e.cluster import wait_until

COMMANDS = ("chromium-headless-shell", "chromium")
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests run as root in containers; the pages are ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


class PageError(AssertionError):
    """A script failed, or its page has gone meanwhile."""


class Browser:
    def __init__(self, folder):
        command = next((found for name in COMMANDS if (found := shutil.which(name))), None)
        if command is None:
            pytest.skip("Chromium is not installed: apt-get install chromium-headless-shell")
        self.folder = folder
        read_end, self._commands = os.pipe()
        self._answers, write_end = os.pipe()
        # It reads commands from descriptor 3 and writes what it has to say to 4.
        script = f'exec "$0" "$@" 3<&{read_end} 4>&{write_end}'
        with open(folder / "chromium.log", "wb") as log:
            self._child = subprocess.Popen(
                ["bash", "-c", script, command, *FLAGS, f"--user-data-dir={folder / 'profile'}"],
                pass_fds=(read_end, write_end),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(read_end)
        os.close(write_end)
        self._unread = b""
        self._number = 0
        self.pages = {}  # by session

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        os.close(self._commands)  # it ends when nobody can command it any more
        self._child.terminate()
        self._child.wait()
        os.close(self._answers)
        if kind is not None:
            for page in self.pages.values():
                print(f"---- {page.url}: {page.complaints}")

    def _next_message(self):
        while b"\0" not in self._unread:
            piece = os.read(self._answers, 1 << 16)
            assert piece, f"the browser has ended:\n{(self.folder / 'chromium.log').read_text(errors='replace')[-2000:]}"
            self._unread += piece
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        """The result of a command; what happens meanwhile is told to the pages."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            command["sessionId"] = session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next_message()
            if message.get("id") == self._number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']}")
                return message["result"]
            if message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].hear(message["method"], message["params"])

    def open(self, url, **options):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, target, session, url, **options)
        page.begin()
        return page


class Page:
    def __init__(self, browser, target, session, url, width=1280, height=900, is_dark=False, before=""):
        self.browser, self.target, self.session, self.url = browser, target, session, url
        self.size, self.is_dark, self.before = (width, height), is_dark, before
        self.complaints = []  # errors and warnings of its console and its scripts
        self.asked = []  # URLs

    def begin(self):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*self.size)
        self.prefer("dark" if self.is_dark else "light")
        if self.before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=self.before)
        self.call("Page.navigate", url=self.url)
        self.wait("document.readyState == 'complete'")

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)

    def resize(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def hear(self, method, told):
        if method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"].get("exception", told["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, expression):
        """Its value, or what it promises. PageError where it throws."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in told:
            raise PageError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def text(self, selector):
        """What stands in the first such element; None where there is none."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")

    def wait(self, condition):
        """Until the expression is true; its value. Of a page that is being loaded, nothing is true yet."""
        last = []

        def is_true():
            try:
                return self.evaluate(condition)
            except PageError as error:
                last[:] = [error]
                return None

        return wait_until(
            is_true,
            lambda: f"{condition}; {last}; {self.complaints}; it says {self.evaluate('document.body?.innerText')}",
        )

    def wait_text(self, selector, part):
        return self.wait(f"[...document.querySelectorAll({json.dumps(selector)})].some(e => e.textContent.includes({json.dumps(part)}))")

    def click(self, selector):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector, value):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(value)}")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
