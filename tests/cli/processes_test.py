"""Ranks in processes of their own: the files of threads and, in mode exact, of one rank, byte for byte; what a rank does, holds and sends
as planned; a process that dies, stops or differs is named, all end, and a restart ends where nobody was disturbed."""

import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

from case import CliTest, ENVIRONMENT, INPUT, TEGULA, USAGE

RUN = ("--batch 8 --seqlen 32 --n-layers 2 --n-heads 4 --d-model 64 --model llama --n-kv-heads 2 --warmup 1 --eval-every 0 --lr 0.01 "
       "--threads 1 --json").split()
FILES = ("model.safetensors", "optimizer.safetensors", "config.json", "trainer_state.json")
# mesh, processes, more flags
PLACES = [("dp=2", 2, ""), ("dp=2", 2, "--zero 1"), ("dp=2", 2, "--zero 2"), ("dp=2", 2, "--zero 3"), ("tp=2", 2, ""),
          ("cp=2", 2, ""), ("dp=2,tp=2", 4, ""), ("dp=2,tp=2", 2, "--zero 3"), ("cp=4", 2, "--seqlen 256")]


class Processes(CliTest):
    TRANSPORT = ()  # flags of --processes

    def among(self, n):
        """Flags of that many processes."""
        return ("--processes", n, *self.TRANSPORT)

    def train(self, out, *flags, steps=3):
        done = self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.dir / out, "--steps", steps, *RUN, *flags))
        return json.loads(done.stdout.splitlines()[-1])

    def files(self, out):
        return {name: (self.dir / out / "latest" / name).read_bytes() for name in FILES}

    def check_counts(self, summary):
        for rank in summary["ranks"]:
            for what in ("flops", "sent_bytes", "peak_bytes"):
                self.assertEqual(rank[what], rank[what + "_planned"])
            self.assertGreater(rank["sent_bytes"], 0)


class Bits(Processes):
    def test_exact_has_the_files_of_one_rank(self):
        for dtype, (mesh, n, more) in itertools.product(("f32", "bf16"), PLACES):
            with self.subTest(mesh=mesh, processes=n, more=more, dtype=dtype):
                flags = ("--mode", "exact", "--dtype", dtype, *more.split())
                one = f"one {dtype} {'--seqlen' in more}"
                if not (self.dir / one).exists():
                    self.train(one, "--mode", "exact", "--dtype", dtype, *(more.split() if "--seqlen" in more else ()))
                out = f"{mesh} {n} {more} {dtype}"
                self.check_counts(self.train(out, *flags, "--mesh", mesh, *self.among(n)))
                self.assertEqual(self.files(one), self.files(out))

    def test_fast_has_the_files_of_threads(self):
        for mesh, n, more in PLACES[::2]:
            with self.subTest(mesh=mesh, more=more):
                flags = ("--mesh", mesh, *more.split())
                threads = self.train("threads", *flags, "--overwrite")
                processes = self.train("processes", *flags, "--overwrite", "--processes", n)
                self.assertEqual(self.files("threads"), self.files("processes"))
                self.assertEqual(threads["ranks"], processes["ranks"])
                self.assertEqual(threads["flops_per_step_executed"], processes["flops_per_step_executed"])

    def test_experts_and_other_families(self):
        moe = "--model moe --n-experts 4 --capacity-factor 1 --balance-loss 0.05".split()
        plain = "--model gpt2 --dropout 0.1".split()
        run = " ".join(RUN).replace("--model llama --n-kv-heads 2 ", "").split()
        for flags, mesh in ((moe, "ep=2,dp=2"), (plain, "dp=2,tp=2"), (plain + ["--accumulate", "3", "--dtype", "f16"], "dp=2")):
            with self.subTest(mesh=mesh, flags=flags):
                for out, more in (("one", ()), ("many", ("--mesh", mesh, *self.among(2)))):
                    self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.dir / out, "--steps", 3, "--overwrite",
                                                 "--mode", "exact", *run, *flags, *more))
                self.assertEqual(self.files("one"), self.files("many"))

    def test_a_run_goes_on_on_other_processes(self):
        flags = ("--mode", "exact", "--lr-decay-steps", 6)
        self.train("one", *flags, steps=6)
        self.train("many", *flags, "--mesh", "dp=2", "--zero", 3, *self.among(2), steps=2)
        self.train("many", *flags, "--resume", "--mesh", "tp=2,cp=2", *self.among(4), steps=4)
        self.train("many", *flags, "--resume", steps=5)
        self.train("many", *flags, "--resume", "--mesh", "dp=4", *self.among(2), steps=6)
        self.assertEqual(self.files("one"), self.files("many"))

    def test_it_starts_from_a_model(self):
        self.train("base", "--mode", "exact", steps=2)
        for out, more in (("one", ()), ("many", ("--mesh", "tp=2", *self.among(2)))):
            self.expect_ok(self.run_tool("train", "--data", self.text, "--init-from", self.dir / "base", "--out", self.dir / out, "--mode",
                                         "exact", *"--batch 8 --steps 3 --eval-every 0 --threads 1".split(), *more))
        self.assertEqual(self.files("one"), self.files("many"))

    def test_standard_input_is_the_text_of_all(self):
        self.train("file", "--mesh", "dp=2", "--processes", 2)
        done = self.run_tool("train", "--data", "-", "--out", self.dir / "input", "--steps", 3, *RUN, "--mesh", "dp=2", "--processes", 2,
                             input=self.text.read_text())
        self.expect_ok(done)
        self.assertEqual(self.files("file"), self.files("input"))

    def test_one_process_speaks(self):
        done = self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.out, "--steps", 3, *RUN, "--mesh", "dp=2",
                                            "--processes", 2))
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertEqual(done.stderr.count("step 3/3"), 1)
        self.assertEqual(done.stderr.count("report: "), 1)
        rows = [json.loads(row) for row in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([row["step"] for row in rows if "loss" in row], [1, 2, 3])
        self.assertTrue((self.out / "report.html").exists())


class Refused(Processes):
    def refused(self, *flags):
        return self.run_tool("train", "--data", self.text, "--out", self.out, "--steps", 3, *RUN, *flags)

    def test_maps_that_cannot_be(self):
        for flags, why in ((("--mesh", "dp=4", "--processes", 3), ("--processes 3", "4 ranks", "take 2")),
                           (("--mesh", "dp=2", "--processes", 4), ("--processes 4", "2 ranks", "take 2")),
                           (("--processes", 2), ("there is one", "--mesh")),
                           (("--restart", 1), ("--restart", "--processes")),
                           (("--mesh", "dp=2", "--processes", 2, "--tune", "quick"), ("--tune quick", "tegula tune"))):
            with self.subTest(flags=flags):
                self.expect_error(self.refused(*flags), USAGE, *why)

    def test_an_error_of_all_is_told_once(self):
        done = self.refused("--mesh", "dp=3", "--processes", 3)
        self.expect_error(done, INPUT, "--batch 8 cannot be shared evenly by the 3 ranks")
        self.train("out", steps=1)
        self.expect_error(self.refused("--mesh", "dp=2", "--processes", 2), INPUT, "holds a run, saved at step 1")

    def test_a_pipe_is_read_once(self):
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        done = self.run_tool("train", "--data", pipe, *RUN, "--mesh", "dp=2", "--processes", 2)
        self.expect_error(done, INPUT, "can be read only once")

    def test_what_is_not_finite_has_the_words_of_one_rank(self):
        flags = ("--lr", "1e30", "--grad-clip", "0", "--steps", 6)
        words = []
        for more in ((), ("--mesh", "tp=2"), ("--mesh", "tp=2", "--processes", 2)):
            done = self.run_tool("train", "--data", self.text, *RUN, *flags, *more)
            self.assertEqual(done.returncode, INPUT)
            words.append(done.stderr.splitlines()[-1])
        self.assertIn("the gradient norm", words[1])
        self.assertIn("op ", words[1])
        self.assertEqual(words[1], words[2])


class Faults(Processes):
    """Four ranks, of which something happens to one."""
    N = 4

    def begin(self, out, *flags, steps=2000, processes=N):
        run = subprocess.Popen([TEGULA, "train", "--data", str(self.text), "--out", str(self.dir / out), "--steps", str(steps), *RUN,
                                "--mesh", "dp=4", "--zero", "3", *map(str, self.among(processes)), "--save-every", "5", *flags],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.addCleanup(run.kill)
        self.addCleanup(run.stderr.close)
        return run

    @staticmethod
    def children(run):
        """By rank: they are started in this order."""
        try:
            return [int(pid) for pid in pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
        except FileNotFoundError:
            return []

    def wait_for_step(self, run, out, step):
        metrics = self.dir / out / "metrics.jsonl"
        end = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") >= step):
            self.assertLess(time.monotonic(), end, "no step in a minute")
            self.assertIsNone(run.poll(), run.poll() is not None and run.stderr.read())
            time.sleep(.01)

    def ended(self, run, since):
        """Its last words, said within 5 seconds; nobody is left."""
        words = run.communicate(timeout=60)[1]
        self.assertLess(time.monotonic() - since, 5)
        self.assertEqual(run.returncode, ENVIRONMENT, words)
        return [line for line in words.splitlines() if line.startswith("tegula: error:")]

    def gone(self, pids):
        return [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]

    def test_one_that_dies_or_stops_is_named_with_its_call(self):
        for sent, name in ((signal.SIGKILL, "was killed by signal 9 (SIGKILL)"), (signal.SIGSTOP, "has been stopped for 2 seconds"),
                           (signal.SIGSEGV, "was killed by signal 11 (SIGSEGV)")):
            for rank in (0, self.N - 1):
                with self.subTest(sent=sent, rank=rank):
                    out = f"{name} {rank}"
                    run = self.begin(out)
                    self.wait_for_step(run, out, 2)
                    pids = self.children(run)
                    self.assertEqual(len(pids), self.N)
                    os.kill(pids[rank], sent)
                    errors = self.ended(run, time.monotonic())
                    self.assertEqual(len(errors), 1, errors)
                    self.assertIn(f"rank {rank} (process {pids[rank]}) {name}", errors[0])
                    self.assertRegex(errors[0], r"call \d+, \w+ over dp \(step \d+ of train_step\)")
                    self.assertIn("all ranks have ended", errors[0])
                    self.assertEqual(self.gone(pids), [])

    def test_nobody_outlives_the_launcher(self):
        run = self.begin("out")
        self.wait_for_step(run, "out", 2)
        pids = self.children(run)
        run.kill()
        run.wait()
        end = time.monotonic() + 5
        while self.gone(pids) and time.monotonic() < end:
            time.sleep(.05)
        self.assertEqual([pid for pid in self.gone(pids) if "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()], [])

    def test_a_signal_stops_all_after_the_same_step(self):
        run = self.begin("out")
        self.wait_for_step(run, "out", 7)
        run.terminate()
        words = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, words)
        self.assertRegex(words, r"stopped by a signal after step \d+; saved in")
        step = json.loads((self.dir / "out/latest/trainer_state.json").read_text())["step"]
        self.train("out", "--resume", "--mesh", "dp=2", "--processes", "2", steps=step + 1)

    def test_a_restart_ends_in_the_weights_of_an_undisturbed_run(self):
        """TEGULA_KILLS=100 for as many moments as the issue asks for."""
        chance = random.Random(54)
        steps = 40
        run = self.begin("one", steps=steps)
        begun = time.monotonic()
        self.assertEqual(run.wait(timeout=60), 0, run.stderr.read())
        seconds = time.monotonic() - begun
        n = int(os.environ.get("TEGULA_KILLS", 4))
        hits = 0
        for i in range(n):
            with self.subTest(i=i):
                run = self.begin("many", "--overwrite", "--restart", "2", steps=steps)
                # From before the first step to the last save.
                time.sleep(seconds * chance.uniform(.02, .8))
                rank = chance.randrange(self.N)
                pids = self.children(run)
                if rank < len(pids):
                    os.kill(pids[rank], signal.SIGKILL)
                words = run.communicate(timeout=120)[1]
                self.assertEqual(run.returncode, 0, words)
                self.assertEqual(self.files("one"), self.files("many"))
                if "starting anew" in words:
                    hits += 1
                    self.assertIn(f"note: rank {rank} (process {pids[rank]}) was killed by signal 9 (SIGKILL)", words)
        self.assertGreater(hits, n // 2)

    def test_restarts_are_counted_and_faults_of_the_input_are_none(self):
        run = self.begin("out", "--restart", "1")
        for _ in range(2):
            self.wait_for_step(run, "out", 2)
            # The steps may be those of the processes before: these have yet to start.
            while len(pids := self.children(run)) < self.N:
                self.assertIsNone(run.poll())
                time.sleep(.01)
            os.kill(pids[1], signal.SIGKILL)
            while self.children(run)[:1] == pids[:1]:
                time.sleep(.01)
        errors = self.ended(run, time.monotonic())
        self.assertEqual(len(errors), 1, errors)
        run = self.begin("nan", "--restart", "3", "--lr", "1e30", "--grad-clip", "0")
        words = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, INPUT, words)
        self.assertNotIn("starting anew", words)

    def test_a_full_disk_on_one_rank_keeps_the_last_checkpoint(self):
        """A file system of 2.5 MB in a namespace of its own: the third checkpoint does not fit beside two."""
        (self.dir / "small").mkdir()
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", self.dir / "small"], capture_output=True).returncode != 0:
            self.skipTest("no file systems in namespaces here")
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=2500k none "$0" && "$@"; code=$?; find "$0" -name ".tmp*"; '
             'ls "$0/out/checkpoints"; exit $code', str(self.dir / "small"), TEGULA, "train", "--data", str(self.text), "--out",
             str(self.dir / "small/out"), "--steps", "20", *RUN, "--mesh", "dp=4", "--zero", "3", "--processes", "4", "--save-every", "5"],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, ENVIRONMENT, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], r"tegula: error: .*cannot write '.*(model|optimizer).safetensors'.*ENOSPC")
        self.assertEqual(done.stdout.split(), ["step-000005", "step-000010"])

    def test_collectives_are_timed_and_fitted(self):
        done = self.expect_ok(self.run_tool("bench", "comm", "--processes", 2, "--repeats", 3, "--json"))
        result = json.loads(done.stdout.splitlines()[-1])
        fits = {(fit["op"], fit["algorithm"]): fit for fit in result["fits"]}
        self.assertEqual(result["link"]["alpha_s"], fits["send_recv", "direct"]["alpha_s"])
        self.assertEqual(len(fits), 1 + 4 + 4 + 2 + 2 + 4 + 3 + 4 + 3)
        for row in result["rows"]:
            fit = fits[row["op"], row["algorithm"]]
            self.assertEqual(row["ranks"], 2)
            self.assertGreater(row["seconds"], 0)
            per_byte = 1 / fit["bytes_per_s"] if fit["bytes_per_s"] else 0
            self.assertAlmostEqual(row["fitted_seconds"], fit["alpha_s"] + row["bytes"] * per_byte, delta=1e-9)
        done = self.expect_ok(self.run_tool("bench", "comm", "--processes", 3, "--repeats", 1, "--bytes", "64KiB", "--transport", "tcp", "--json"))
        self.assertEqual(len(json.loads(done.stdout.splitlines()[-1])["rows"]), 27)
        self.expect_error(self.run_tool("bench", "comm", "--bytes", "3"), USAGE, "--bytes '3'", "8MiB")

    def test_processes_that_differ_are_refused(self):
        """Each reads the map of its own memory."""
        done = self.run_tool("train", "--data", "/proc/self/maps", "--tokenizer", "bytes", "--steps", 3, *RUN, "--mesh", "dp=2",
                             "--processes", 2)
        self.expect_error(done, INPUT, "rank 1 (process 1) has another data_sha256 than rank 0: ")


if __name__ == "__main__":
    unittest.main()
