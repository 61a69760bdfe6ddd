"""The exit codes are those of the table in docs/cli.md, which this reads."""

import pathlib
import os
import re
import signal
import subprocess
import unittest

from case import CliTest, SECONDS, TEGULA

PAGE = pathlib.Path("docs/cli.md")


class ExitCodes(CliTest):
    def table(self):
        rows = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
        return sorted(map(int, rows))

    def test_each_code_of_the_table(self):
        def stopped(number):
            process = self.start("--out", self.dir / f"out{number}", "--steps", 10**9)
            while not process.stderr.readline().startswith("step "):
                pass
            process.send_signal(number)
            process.stderr.read()
            return process.wait(SECONDS)

        def unread():
            read, write = os.pipe()
            os.close(read)  # before the tool begins: a reader that ends later may have read all
            done = subprocess.run([TEGULA, "ops"], stdout=write, stderr=subprocess.DEVNULL)
            os.close(write)
            return done.returncode

        with open("/dev/full", "w") as full:
            lost = subprocess.run([TEGULA, "ops"], stdout=full, stderr=subprocess.DEVNULL)
        seen = {
            0: {self.run_tool("--help").returncode, self.run_tool("plan", "--help").returncode,
                self.run_tool("--version").returncode, self.train().returncode},
            1: {self.train(data=self.dir / "no").returncode,
                self.train(data=self.write("empty", "")).returncode,
                self.run_tool("plan", "--load", self.text).returncode,
                self.run_tool("generate", "--model", self.dir, "--prompt", "a").returncode,
                self.run_tool("train", "--config", self.dir / "no").returncode,
                self.train("--lr", "1e30", "--min-lr", "1e30", "--grad-clip", 0, "--warmup", 0,
                           "--steps", 50).returncode},
            2: {self.run_tool().returncode, self.run_tool("trian").returncode,
                self.train("--oops").returncode, self.train("--steps", "x").returncode,
                self.run_tool("train").returncode, self.train("--passes", "x").returncode,
                self.train("--tokenizer", "x").returncode, self.train("--memory", "x").returncode,
                self.run_tool("bench", "gemm", "--shape", "1,2").returncode,
                self.train("--config", self.write("bad.toml", "x = 1")).returncode},
            3: {lost.returncode, self.train("--memory", "1KiB").returncode},
            129: {stopped(signal.SIGHUP)},
            130: {stopped(signal.SIGINT)},
            141: {unread()},
            143: {stopped(signal.SIGTERM)},
        }
        self.assertEqual(seen, {code: {code} for code in seen})
        self.assertEqual(sorted(seen), self.table())

    def test_the_page_knows_every_command(self):
        page = PAGE.read_text()
        listed = self.run_tool("--help").stdout.split("Subcommands:")[1]
        commands = re.findall(r"^  (\w+)  ", listed, re.MULTILINE)
        self.assertGreater(len(commands), 8)
        for command in commands:
            self.assertIn(f"`tegula {command}", page)
        # And every flag that the page names is one.
        # `plan MODEL` is another page of flags than `plan`.
        for command, text in re.findall(r"^### `tegula (\w+(?: MODEL)?)[^\n]*\n(.*?)(?=^#)",
                                        page + "\n# ", re.MULTILINE | re.DOTALL):
            known = self.run_tool(*command.split(), "--help").stdout
            for sub in re.findall(r"^  (\w+)  ", known.split("Subcommands:")[-1], re.MULTILINE) \
                    if "Subcommands:" in known else ():
                known += self.run_tool(command, sub, "--help").stdout
            for flag in re.findall(r"`(--[a-z][\w-]*)", text):
                self.assertRegex(known, rf"{flag}\b", command)


if __name__ == "__main__":
    unittest.main()
