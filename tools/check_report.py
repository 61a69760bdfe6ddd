#!/usr/bin/env python3
"""Looks at reports of training runs in a browser, on a narrow and on a wide screen.

  tools/check_report.py [--shots DIR] REPORT.html...
  tools/check_report.py --planted       whether each fault is found in a page that has it

Chromium, headless, lays each page out at 360 pixels, as a phone does, and at 1600, light and dark. What is wrong:
  overflow    the page, or something on it that does not scroll, is wider than the screen
  overprint   two pieces of text cover each other
  clipped     a chart's text leaves the chart
  tiny        text is drawn with letters of less than 8 pixels
  console     an error or a warning on the browser's console, or a request for anything but the page
--shots keeps a picture of each. Needs Chromium (script/bootstrap --browser).
"""

import argparse
import base64
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

WIDTHS = (360, 1600)

# Every line of text with its box; what it says goes into the message.
LOOK = r"""(() => {
  const found = [], screen = document.documentElement.clientWidth;
  const say = (what, why) => found.push(what + ": " + why);
  const quote = s => JSON.stringify(s.trim().slice(0, 40));
  if (window.innerWidth !== WIDTH) say("overflow", `the page is laid out ${window.innerWidth} pixels wide`);
  const all = document.documentElement.scrollWidth;
  if (all > screen) say("overflow", `the page is ${all} pixels wide, the screen ${screen}`);
  const scrolls = e => { for (let p = e.parentElement; p; p = p.parentElement)
    if (/auto|scroll|hidden/.test(getComputedStyle(p).overflowX)) return true; return false; };
  for (const e of document.body.querySelectorAll("*"))
    if (!(e instanceof SVGElement && e.ownerSVGElement) && e.getBoundingClientRect().right > screen + 1 && !scrolls(e))
      say("overflow", `<${e.tagName.toLowerCase()}> ends at ${e.getBoundingClientRect().right.toFixed()}`);
  const lines = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    if (!n.textContent.trim() || n.parentElement.closest("title,style,script")) continue;
    const range = document.createRange();
    range.selectNodeContents(n);
    for (const box of range.getClientRects())
      if (box.width > 0 && box.height > 0) lines.push({box, text: n.textContent, node: n});
    const svg = n.parentElement.ownerSVGElement;
    const px = parseFloat(getComputedStyle(n.parentElement).fontSize) * (svg ? n.parentElement.getScreenCTM().a : 1);
    if (px < 8) say("tiny", `${quote(n.textContent)} has ${px.toFixed(1)} pixels`);
    if (!svg) continue;
    const a = range.getBoundingClientRect(), b = svg.getBoundingClientRect();
    if (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1)
      say("clipped", `${quote(n.textContent)} leaves its chart`);
  }
  lines.sort((a, b) => a.box.top - b.box.top);
  for (let i = 0; i < lines.length; ++i)
    for (let k = i + 1; k < lines.length && lines[k].box.top < lines[i].box.bottom; ++k) {
      const a = lines[i].box, b = lines[k].box;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (lines[i].node !== lines[k].node && wide > 1 && high > 2)
        say("overprint", `${quote(lines[i].text)} and ${quote(lines[k].text)}`);
    }
  return found;
})()"""

GOOD = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>t</title><style>svg{width:100%}</style><p>text</p>
<svg viewBox="0 0 300 40"><text x="4" y="14" font-size="12">left</text><text x="200" y="14" font-size="12">right</text></svg>
"""
PLANTED = {
    "overflow": GOOD + '<table><tr><td style="white-space:nowrap">' + "wide " * 90 + "</table>",
    "overflow, without a viewport": GOOD.replace("width=device-width", ""),
    "overprint": GOOD.replace('x="200"', 'x="20"'),
    "clipped": GOOD.replace('x="200"', 'x="290"'),
    "tiny": GOOD.replace('viewBox="0 0 300 40"', 'viewBox="0 0 3000 40"'),
    "console": GOOD + "<script>console.error('no')</script>",
    "console, a script's fault": GOOD + "<script>nothing.here()</script>",
    "console, a request": GOOD + '<img src="missing.png" alt="">',
}


class Browser:
    """Chromium over its debugging pipe: messages are JSON that end with a zero byte."""

    def __init__(self, timeout_s=60):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if not program:
            raise FileNotFoundError("no Chromium: script/bootstrap --browser")
        self.timeout_s = timeout_s
        self.profile = tempfile.TemporaryDirectory()
        to_browser, self.writes = os.pipe()
        self.reads, from_browser = os.pipe()

        def give():  # it reads descriptor 3 and writes 4
            ends = os.dup(to_browser), os.dup(from_browser)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)
        flags = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--disable-gpu",
                 "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage"]
        if os.geteuid() == 0:  # its sandbox does not work for root
            flags.append("--no-sandbox")
        self.process = subprocess.Popen([program, *flags, "about:blank"], preexec_fn=give, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.numbers, self.buffer, self.events = itertools.count(1), b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    session = None

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reads], [], [], left)[0]:
                raise TimeoutError(f"Chromium says nothing for {self.timeout_s} s")
            chunk = os.read(self.reads, 1 << 20)
            if not chunk:
                raise ConnectionError("Chromium ended")
            self.buffer += chunk
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def call(self, method, **params):
        number = next(self.numbers)
        asked = {"id": number, "method": method, "params": params}
        if self.session:
            asked["sessionId"] = self.session
        os.write(self.writes, json.dumps(asked).encode() + b"\0")
        deadline = time.monotonic() + self.timeout_s
        while True:
            said = self.message(deadline)
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']['message']}")
                return said["result"]
            self.events.append(said)

    def wait_for(self, event):
        deadline = time.monotonic() + self.timeout_s
        while not any(e.get("method") == event for e in self.events):
            self.events.append(self.message(deadline))

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.writes)
        os.close(self.reads)
        self.profile.cleanup()


def complaints(events):
    for event in events:
        method, p = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            yield "console: " + p["exceptionDetails"].get("exception", {}).get("description", "an exception")
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            yield "console: " + " ".join(str(a.get("value", a.get("description", ""))) for a in p["args"])
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            yield "console: " + p["entry"]["text"]
        elif method == "Network.requestWillBeSent" and p.get("type") != "Document":
            yield f"console: asks for {p['request']['url'][:80]}"


def look(browser, page, width, is_dark=False, shot=None):
    """What is wrong with a page of that width."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1,
                 mobile=width < 600)
    browser.call("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])
    browser.events.clear()
    browser.call("Page.navigate", url=pathlib.Path(page).resolve().as_uri())
    browser.wait_for("Page.loadEventFired")
    said = browser.call("Runtime.evaluate", expression=LOOK.replace("WIDTH", str(width)), returnByValue=True)
    if "exceptionDetails" in said:
        raise RuntimeError(said["exceptionDetails"]["exception"]["description"])
    found = list(dict.fromkeys([*said["result"]["value"], *complaints(browser.events)]))
    if shot:
        size = browser.call("Page.getLayoutMetrics")["cssContentSize"]
        taken = browser.call("Page.captureScreenshot", captureBeyondViewport=True,
                             clip={"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1})
        pathlib.Path(shot).write_bytes(base64.b64decode(taken["data"]))
    return found


def check_planted(browser):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"nothing": GOOD, **PLANTED}.items():
            page = pathlib.Path(folder) / "page.html"
            page.write_text(text, encoding="utf-8")
            found = look(browser, page, WIDTHS[0])
            wanted = name.split(",")[0]
            is_good = not found if wanted == "nothing" else any(f.startswith(wanted + ":") for f in found)
            print(f"planted {name}: {'found' if is_good else 'NOT as it should be: ' + repr(found)}")
            failed += not is_good
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planted", action="store_true", help="check the checker")
    parser.add_argument("--shots", type=pathlib.Path, help="folder for pictures")
    parser.add_argument("reports", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    if not args.planted and not args.reports:
        parser.error("no report is given")
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    browser = Browser()
    failed = 0
    try:
        if args.planted:
            failed += check_planted(browser)
        for i, report in enumerate(args.reports):
            for width, is_dark in itertools.product(WIDTHS, (False, True)):
                name = f"{width}{', dark' if is_dark else ''}"
                shot = args.shots / f"{i}-{report.parent.name}-{name.replace(', ', '-')}.png" if args.shots else None
                found = look(browser, report, width, is_dark, shot)
                failed += bool(found)
                print(f"{report} at {name}: {'well' if not found else ''}")
                for one in found:
                    print(f"  {one}")
    finally:
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
