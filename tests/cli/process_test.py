"""What the system does to a process: closed streams, lost readers, signals, limits."""

import json
import os
import resource
import shutil
import signal
import subprocess
import unittest

from case import CliTest, ENVIRONMENT, INPUT, SECONDS, SMALL, TEGULA


class Streams(CliTest):
    def test_closed_streams_are_not_files_of_the_run(self):
        for closed in ((0, 1, 2), (2,), (1, 2)):
            out = self.dir / f"out{len(closed)}"
            redirect = " ".join(f"{fd}>&-" for fd in closed)
            done = subprocess.run(["bash", "-c", f'exec "$@" {redirect}', "bash", TEGULA, "train",
                                   "--data", str(self.text), *SMALL, "--json", "--out", str(out)],
                                  timeout=SECONDS, stdout=subprocess.DEVNULL)
            # The run is whole; that its last line was lost is told by the exit code.
            self.assertEqual(done.returncode, INPUT if 1 in closed else 0)
            rows = [json.loads(r) for r in (out / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([r["step"] for r in rows if "loss" in r], [1, 2, 3, 4])

    def test_lost_output_is_told(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([TEGULA, "ops"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.expect_error(done, ENVIRONMENT, "cannot write")

    def test_a_reader_that_had_enough_is_no_error(self):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([TEGULA, "ops"], stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        self.assertEqual((done.returncode, done.stderr), (141, ""))

    def test_a_run_whose_reader_leaves_is_saved(self):
        process = subprocess.Popen([TEGULA, "train", "--data", self.text, *SMALL, "--out", self.out,
                                    "--steps", str(10**9)], stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL)
        process.stderr.readline()
        process.stderr.close()
        self.assertEqual(process.wait(SECONDS), 141)
        step = json.loads(self.weights()["trainer_state.json"])["step"]
        self.assertGreater(step, 0)
        self.expect_ok(self.train("--out", self.out, "--resume", "--steps", step + 1))

    def test_a_lost_terminal_saves(self):
        process = self.start("--out", self.out, "--steps", 10**9)
        while not process.stderr.readline().startswith("step "):
            pass
        process.send_signal(signal.SIGHUP)
        self.assertIn("--resume goes on", process.stderr.read())
        self.assertEqual(process.wait(SECONDS), 129)


class Limits(CliTest):
    def limited(self, *limits, **options):
        def limit():
            for name, value in limits:
                resource.setrlimit(name, (value, value))
        return {"preexec_fn": limit, **options}

    def test_too_little_address_space_is_one_line(self):
        most = (resource.RLIMIT_AS, 200 << 20)
        big = self.write("big.txt", b"a line of text\n" * (8 << 20))  # 120 MB, twice in memory
        for arguments in (("train", "--data", big, *SMALL), ("plan", "--data", big)):
            self.expect_error(self.run_tool(*arguments, **self.limited(most)), ENVIRONMENT,
                              "memory", lines_before=True)
        self.expect_ok(self.run_tool("ops", **self.limited(most)))
        # Less than what the probe of the memory's speed reads.
        little = (resource.RLIMIT_AS, 75 << 20)
        self.expect_error(self.run_tool("doctor", **self.limited(little)), ENVIRONMENT, "memory", lines_before=True)
        # Threads that the limit does not allow are done without.
        done = self.train("--threads", 64, **self.limited((resource.RLIMIT_AS, 260 << 20)))
        self.assertNotIn("terminate", done.stderr)
        if done.returncode != 0:
            self.assertEqual(done.returncode, ENVIRONMENT, done.stderr)

    def test_a_file_beyond_the_limit_is_told(self):
        done = self.train("--out", self.out, **self.limited((resource.RLIMIT_FSIZE, 8000)))
        self.expect_error(done, ENVIRONMENT, "cannot write", "ulimit -f", lines_before=True)

    def test_devices_are_no_configurations(self):
        self.expect_ok(self.train("--out", self.out))
        model = self.dir / "model"
        model.mkdir()
        (model / "config.json").symlink_to("/dev/zero")
        for arguments in (("generate", "--model", model, "--prompt", "a"),
                          ("train", "--config", "/dev/zero"), ("plan", "--load", "/dev/zero"),
                          ("encode", "--model", self.out, "--text", "/dev/zero"),
                          ("decode", "--model", self.out, "--ids", "/dev/zero"),
                          ("grad", "--model", model, "--tokens", "/dev/zero", "--out", "x")):
            done = self.run_tool(*arguments, **self.limited((resource.RLIMIT_AS, 4 << 30)))
            self.assertIn(done.returncode, (1, 2), done.stderr)
            self.expect_error(done, done.returncode, "is a device")


class Disappearing(CliTest):
    def test_out_that_is_deleted_in_the_middle_loses_no_weights_in_silence(self):
        process = self.start("--out", self.out, "--steps", 4000)
        while not process.stderr.readline().startswith("step "):
            pass
        # Between its first step and its last; it shall not end before the directory is gone.
        process.send_signal(signal.SIGSTOP)
        shutil.rmtree(self.out)
        process.send_signal(signal.SIGCONT)
        errors = process.stderr.read()
        self.assertEqual(process.wait(SECONDS), ENVIRONMENT, errors)
        self.assertIn("metrics.jsonl' was moved or deleted", errors.splitlines()[-1])
        self.assertEqual(json.loads(self.weights()["trainer_state.json"])["step"], 4000)
        self.expect_ok(self.train("--out", self.out, "--resume", "--steps", 4001))


class Machine(CliTest):
    def test_more_threads_than_cores_are_told(self):
        cores = len(os.sched_getaffinity(0))
        for command in (("plan", "--n-layers", 1), ("doctor",)):
            done = self.expect_ok(self.run_tool(*command, "--threads", cores + 1))
            self.assertIn(f"note: {cores + 1} threads share {cores} cores", done.stderr)
            self.assertIn(f"--threads {cores}\n", done.stderr)
            done = self.expect_ok(self.run_tool(*command, "--threads", cores))
            self.assertNotIn("threads share", done.stderr)

    def test_a_plan_larger_than_memory_says_what_fits(self):
        size = ("--n-layers", 4, "--d-model", 256, "--vocab-size", 300, "--seqlen", 1024)
        # Activations alone are ten times the machine's memory.
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        batch = 1 + 10 * total // (1024 * 256 * 4 * 4 * 10)
        done = self.expect_ok(self.run_tool("plan", *size, "--batch", batch, "--threads", 1))
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: this takes")]
        self.assertEqual(len(notes), 1, done.stderr)
        self.assertRegex(notes[0], r"this takes \d+MiB of memory and there is \d+MiB: ")
        # One that fits when it recomputes.
        batch = 1 + int(1.5 * total / (1024 * 256 * 4 * 4 * 14))
        done = self.expect_ok(self.run_tool("plan", *size, "--batch", batch, "--threads", 1))
        if "makes it fit" in done.stderr:
            budget = done.stderr.split("--memory ")[1].split()[0]
            done = self.expect_ok(self.run_tool("plan", *size, "--batch", batch, "--threads", 1,
                                                "--memory", budget))
            self.assertNotIn("note: this takes", done.stderr)
        self.assertEqual("", self.expect_ok(self.run_tool("plan", "--n-layers", 1)).stderr)


if __name__ == "__main__":
    unittest.main()
