"""Opens the status page of a server under load in headless Chromium, and checks what it shows.

python3 scripts/status_page.py PROGRAM CHROMIUM [SCREENSHOTS]
"""

import base64
import json
import os
import subprocess
import sys
import tempfile

from observed_server import Load, Server, wait_for

# A key that runs a script if the page takes it for markup.
HOSTILE_KEY = '<img src=x onerror="alert(1)"></code><script>alert(2)</script>'
# Elements that must show a figure.
FIGURES = [
    "rate", "p99", "p50", "commands", "clients", "clients_max", "hits", "lookups", "used", "capacity", "anonymous",
    "dram", "keys", "expired", "served", "recovery", "rate_top", "p99_top", "survives", "durability", "medium",
    "engine", "store", "damage", "errors", "network", "slow_note",
]
WIDTH, HEIGHT, NARROW = 1100, 900, 360
# Points of a chart before a check of the layout, and before pictures that are kept.
POINTS_FEW, POINTS_MANY = 8, 90
# Points of the chart of the rate.
DRAWN_POINTS = "document.getElementById('rate_line').getAttribute('points').split(' ').length"


class Browser:
    """Chromium, driven through the two pipes of its debugging protocol."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="lodestore-browser-", ignore_cleanup_errors=True)
        commands_out, self.commands = os.pipe()
        self.events, events_in = os.pipe()

        def place_pipes():
            # The browser reads from descriptor 3 and writes to descriptor 4.
            high = [os.dup(commands_out), os.dup(events_in)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        words = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}"]
        words += ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
        words += ["--disable-component-update", "--hide-scrollbars"]
        if os.getuid() == 0:
            words.append("--no-sandbox")
        self.process = subprocess.Popen(
            words, preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(commands_out)
        os.close(events_in)
        self.buffer, self.number, self.session, self.seen = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Network", "Runtime", "Log"]:
            self.call(f"{domain}.enable")

    def receive(self):
        while b"\0" not in self.buffer:
            chunk = os.read(self.events, 1 << 16)
            if not chunk:
                raise SystemExit("the browser ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            if answer["method"] == "Page.javascriptDialogOpening":
                # A dialog stops the page, so no further call would be answered.
                raise SystemExit(f"wrong: a text ran as a script: {answer['params']['message']}")
            self.seen.append(answer)

    def value(self, expression):
        """Returns the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def text(self, name):
        return self.value(f"document.getElementById({json.dumps(name)})?.textContent ?? ''")

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def color_scheme(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        image = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(image["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.profile.cleanup()


def check(is_right, what):
    if not is_right:
        raise SystemExit(f"wrong: {what}")


def log_hostile_key(server):
    """Adds entries to the slow log: a long command, and one with the hostile key."""
    client = server.client()
    client.run("CLIENT", "SETNAME", "<b>worker</b>")
    client.run("DEBUG", "SLEEP", "0.03")
    # One write, so that few commands of the load come in between.
    client.run_all(
        ("CONFIG", "SET", "slowlog-log-slower-than", "0"),
        ("SET", HOSTILE_KEY, "value\n\x00", "EX", "60"),
        ("CONFIG", "SET", "slowlog-log-slower-than", "10000"),
    )


def check_figures(browser):
    """Checks that all figures are there, and that they change."""
    wait_for(lambda: browser.text("rate").replace(",", "").isdigit() and browser.text("rate") != "0", "a rate")
    wait_for(lambda: browser.text("p99") != "-", "a latency")
    for name in FIGURES:
        check(browser.text(name) not in ("", "-"), f"#{name} is empty")
    before = browser.text("commands")
    wait_for(lambda: browser.text("commands") != before, "another number of commands")
    drawn = browser.value(DRAWN_POINTS)
    wait_for(lambda: browser.value(DRAWN_POINTS) > drawn, "another point of the chart")
    rows = browser.text("command_rows")
    check(all(name in rows for name in ["SET", "GET", "MGET", "HSET", "INCR"]), f"commands: {rows}")
    check(browser.value("document.querySelectorAll('#engine_rows tr').length") > 5, "counters of the engine")
    check(browser.text("alerts") == "", f"an alert: {browser.text('alerts')}")


def check_texts(browser):
    """Checks that texts of clients are texts."""
    slow = browser.text("slow_rows")
    check(HOSTILE_KEY in slow and "<b>worker</b>" in slow and "SLEEP" in slow, f"the slow log: {slow}")
    check("value\\n\\u{0}" in slow, f"control characters: {slow}")
    foreign = "document.querySelectorAll('img, iframe, #slow_rows b, body script:not(:last-of-type)').length"
    check(browser.value(foreign) == 0, "a key became markup")


def check_states(browser):
    """Checks the alerts for states that a healthy store does not have."""
    show = "showAlerts({ ...samples.at(-1).now, %s }); document.getElementById('alerts').textContent"
    for change, says in [
        ("recovery_done: 0, recovery_percent: 42, recovery_keys: 1234", "The store is recovering: 42 %, 1,234 keys"),
        ("damage: '<i>x</i>'", "The store is damaged: <i>x</i>"),
        ("recovery_corrupt: 2", "the recovery found 2 damaged places"),
        ("poison: 'sync failed'", "The store refuses writes: sync failed"),
        ("memory_exceeded: 1", "the store uses more than maxmemory"),
        ("stopping: 1", "The server is stopping."),
    ]:
        text = browser.value(show % change)
        check(says in text, f"{change}: {text}")


def check_layout(browser, screenshots):
    """Checks a narrow screen and the keyboard, and makes screenshots."""
    browser.screenshot(os.path.join(screenshots, "status-page.png"))
    browser.color_scheme("dark")
    browser.screenshot(os.path.join(screenshots, "status-page-dark.png"))
    browser.resize(NARROW, HEIGHT)
    width = browser.value("document.documentElement.scrollWidth")
    check(width <= NARROW, f"{width} pixels on a screen of {NARROW}")
    browser.screenshot(os.path.join(screenshots, "status-page-narrow.png"))
    browser.resize(WIDTH, HEIGHT)
    browser.color_scheme("light")
    reached = set()
    for _ in range(4):
        browser.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", windowsVirtualKeyCode=9)
        browser.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", windowsVirtualKeyCode=9)
        name = browser.value("document.activeElement.getAttribute('aria-labelledby') || document.activeElement.tagName")
        reached.add(name)
    check(reached == {"commands_title", "slow_title", "store_title", "SUMMARY"}, f"the keyboard reaches {reached}")


def check_end(browser, server):
    """Checks that the page shows a server that is gone, and one that is back."""
    server.kill()
    wait_for(lambda: "The server does not answer since" in browser.text("alerts"), "the alert of a server that is gone")
    check(browser.value("document.body.className") == "gone" and browser.text("rate") == "-", "old figures look new")
    check(browser.text("state") == "no answer", "the state")
    server.start()
    wait_for(lambda: "The server restarted" in browser.text("alerts"), "the alert of a restart")
    check(browser.value("document.body.className") == "", "new figures look old")


def check_traffic(browser, server):
    """Checks the requests of the page and its messages."""
    urls = [event["params"]["request"]["url"] for event in browser.seen if event["method"] == "Network.requestWillBeSent"]
    check(len(urls) > 5, f"{len(urls)} requests")
    strangers = [url for url in urls if not url.startswith((server.page, "data:,"))]
    check(not strangers, f"requests to other addresses: {strangers}")
    for event in browser.seen:
        check(event["method"] != "Runtime.exceptionThrown", f"{event}")
        entry = event["params"].get("entry", {}) if event["method"] == "Log.entryAdded" else {}
        # While the server is gone its requests fail.
        is_failure = entry.get("level") == "error" and "ERR_CONNECTION_REFUSED" not in entry.get("text", "")
        check(not is_failure, f"an error of the page: {entry}")


def main():
    program, chromium, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="lodestore-status-page-") as scratch:
        screenshots = rest[0] if rest else scratch
        server = Server(program)
        browser = None
        try:
            load = Load(server)
            log_hostile_key(server)
            browser = Browser(chromium)
            browser.resize(WIDTH, HEIGHT)
            browser.call("Page.navigate", url=server.page)
            check_figures(browser)
            check_texts(browser)
            points = POINTS_MANY if rest else POINTS_FEW
            wait_for(lambda: browser.value(DRAWN_POINTS) >= points, f"{points} points of the chart", seconds=2 * points)
            check_layout(browser, screenshots)
            check_states(browser)
            load.stop()
            check_end(browser, server)
            check_traffic(browser, server)
        finally:
            if browser:
                browser.close()
            server.remove()
    print("the status page shows its figures, and texts of clients stay texts")


main()
