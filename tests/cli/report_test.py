"""What a run shows: the progress line, the report, the picture of the README."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unittest
import xml.etree.ElementTree

from case import CliTest, SECONDS, SMALL, TEGULA


class Terminal(CliTest):
    def test_the_progress_line_is_rewritten_and_never_wraps(self):
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        process = subprocess.Popen([TEGULA, "train", "--data", self.text, *SMALL, "--steps", "3000",
                                    "--out", self.out], stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(main, 4096)
            except OSError:  # the other end is closed
                break
        os.close(main)
        self.assertEqual(process.communicate(timeout=SECONDS)[0], b"")
        self.assertEqual(process.returncode, 0)
        steps = [piece for line in shown.decode().split("\n") for piece in line.split("\r\033[K")
                 if piece.startswith("step ") and "validation" not in piece]
        self.assertGreaterEqual(len(steps), 2)
        for piece in steps:
            self.assertLess(len(piece.rstrip("\r")), 60)


class Report(CliTest):
    def test_the_report_is_one_page_that_needs_nothing_else(self):
        flags = ("--out", self.out, "--eval-every", 2)
        self.expect_ok(self.train(*flags))
        self.expect_ok(self.train(*flags, "--resume", "--steps", 8))
        page = (self.out / "report.html").read_text()
        self.assertNotIn("<script", page)
        self.assertNotRegex(page.replace("http://www.w3.org/2000/svg", ""), r"https?:|src=|href=")
        self.assertIn("prefers-color-scheme:dark", page)
        self.assertRegex(page, r"MFU [0-9.]+ %")
        for title in ("Loss", "Predicted beside measured", "Time per op", "Roofline",
                      "Memory of the plan"):
            self.assertIn(f"<h2>{title}</h2>", page)
        self.assertEqual(page.count(">equal<"), 2)
        charts = [xml.etree.ElementTree.fromstring(c)
                  for c in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
        self.assertEqual(len(charts), 3)
        # The whole run is drawn, also what went before the resume: evaluations at 2, 4, 6 and 8.
        titles = ["".join(t.itertext()) for t in charts[0].iter() if t.tag.endswith("title")]
        self.assertEqual([t.split(":")[0] for t in titles], [f"step {n}" for n in (2, 4, 6, 8)])
        # Every op of the table stands in the roofline.
        ops = set(re.findall(r"<tr><td>(\w+)<small>", page))
        drawn = {"".join(t.itertext()).split(" (")[0] for t in charts[1].iter()}
        self.assertGreater(len(ops), 5)
        self.assertLessEqual(ops, drawn)

    def test_the_picture_of_the_readme(self):
        self.expect_ok(self.train("--out", self.out))
        picture = self.dir / "run.svg"
        subprocess.run([sys.executable, "tools/run_picture.py", self.out / "report.html", picture],
                       check=True)
        text = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext())
        self.assertRegex(text, r"parameters · FLOPs a step: planned ([^,]+), measured \1 · peak")


if __name__ == "__main__":
    unittest.main()
