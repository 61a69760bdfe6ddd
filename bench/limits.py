"""Commands with a time limit, whose children end with them: what a benchmark of many rows runs, so that one that hangs
costs itself alone.

    left = Limit(480)                                     # a part of 8 minutes
    row = left.run_json([tegula, "bench", …], most=100)   # the last line it prints
    seconds, lines = left.seconds_to(command, 1.5)        # until it prints "validation loss 1.49"
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time


class Failed(RuntimeError):
    """A command that ended badly or too late; says which and why."""


class Limit:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def within(self, seconds):
        """A limit of so many seconds that ends no later than this one."""
        return Limit(min(seconds, self.left()))

    @contextlib.contextmanager
    def start(self, command, env, **streams):
        if self.left() < 1:
            raise Failed("no time left")
        process = subprocess.Popen([str(x) for x in command], text=True, start_new_session=True,
                                   env=dict(os.environ, **env), **streams)
        is_late = threading.Event()

        def kill():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        def end():
            is_late.set()
            kill()

        allowed = self.left()
        timer = threading.Timer(allowed, end)
        timer.start()
        try:
            yield process
            if is_late.is_set():
                raise Failed(f"not done after {allowed:.0f} s")
        finally:
            timer.cancel()
            kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

    def run_json(self, command, **env):
        """The object on the last line that it prints."""
        with self.start(command, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate()
        if process.returncode != 0 or not out.strip():
            raise Failed(" ".join(err.split())[-300:] or f"exit code {process.returncode}")
        return json.loads(out.strip().splitlines()[-1])

    def seconds_to(self, command, target, **env):
        """From the start to the line that says a validation loss of at most `target`, and which loss."""
        begin, last, lines = time.monotonic(), None, []
        with self.start(command, env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            for line in process.stdout:
                lines.append(line.strip())
                if found := re.search(r"validation loss (\d+\.?\d*)", line):
                    last = float(found[1])
                    if last <= target:
                        return time.monotonic() - begin, last
        raise Failed(f"never at {target}, last {last}: {' '.join(lines[-3:])[-300:]}")
