"""Ranks in processes that share no memory, over TCP and MPI: the files of one rank byte for byte, bytes on the wire as planned, faults
named within five seconds, and what to type where something is missing."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

import processes_test
from case import ENVIRONMENT, INPUT, TEGULA, USAGE
from processes_test import RUN, Processes

TCP = ("--transport", "tcp")
# Four ranks on this machine, whoever runs the test.
MPIRUN = ("mpirun", "--oversubscribe")
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
HAS_MPI = shutil.which("mpirun") is not None and (pathlib.Path(TEGULA).parent / "libtegula_mpi.so").exists()


# Without iproute2: SIOCSIFFLAGS with IFF_UP; then the command, and what the loopback has counted.
LOOPBACK_UP = """
import fcntl, socket, struct, subprocess, sys
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 1))
code = subprocess.run(sys.argv[1:]).returncode
print(open("/proc/net/dev").read(), flush=True)
sys.exit(code)
"""


class TcpBits(Processes):
    TRANSPORT = TCP
    test_exact_has_the_files_of_one_rank = processes_test.Bits.test_exact_has_the_files_of_one_rank
    test_experts_and_other_families = processes_test.Bits.test_experts_and_other_families
    test_a_run_goes_on_on_other_processes = processes_test.Bits.test_a_run_goes_on_on_other_processes

    def test_fast_has_the_files_of_threads(self):
        for flags in (("--mesh", "dp=2,tp=2"), ("--mesh", "cp=4", "--seqlen", 256), ("--mesh", "dp=4", "--zero", 3)):
            with self.subTest(flags=flags):
                self.train("threads", *flags, "--overwrite")
                apart = self.train("apart", *flags, "--overwrite", *self.among(4))
                self.check_counts(apart)
                self.assertEqual(self.files("threads"), self.files("apart"))

    def test_bytes_on_the_wire_are_those_planned(self):
        """Of the loopback of a network name space of its own, where nobody else talks; with heads of frames, of TCP and IP."""
        if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode != 0:
            self.skipTest("no network name spaces here")
        steps, base = 30, 5
        sent = {}
        for n in (base, base + steps):
            done = subprocess.run(
                ["unshare", "-rn", sys.executable, "-c", LOOPBACK_UP, TEGULA,
                 "train", "--data", str(self.text), "--steps", str(n), *RUN, "--d-model", "256", "--seqlen", "64", "--mesh", "dp=4", "--processes", "4",
                 *TCP], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = done.stdout.splitlines()
            row = next(line for line in lines if line.strip().startswith("lo:"))
            planned = sum(r["sent_bytes_planned"] for r in json.loads(next(line for line in lines if line.startswith("{")))["ranks"])
            sent[n] = int(row.split()[1])
        # Words that processes say before and after are in both.
        on_wire = (sent[base + steps] - sent[base]) / steps
        self.assertGreaterEqual(on_wire, planned)
        self.assertLess(on_wire, 1.15 * planned)


class TcpBench(Processes):
    def test_collectives_are_timed(self):
        done = self.expect_ok(self.run_tool("bench", "comm", "--processes", 2, *TCP, "--op", "all_reduce", "--bytes", "64KiB", "--repeats", 3, "--json"))
        rows = json.loads(done.stdout.splitlines()[-1])["rows"]
        self.assertEqual({row["ranks"] for row in rows}, {2})
        self.assertEqual(sum(row["chosen"] for row in rows), 1)
        self.assertTrue(all(row["seconds"] > 0 for row in rows))


class TcpFaults(processes_test.Faults):
    """All that happens to processes that share memory happens to these."""
    TRANSPORT = TCP
    test_collectives_are_timed_and_fitted = None
    test_processes_that_differ_are_refused = None
    test_a_full_disk_on_one_rank_keeps_the_last_checkpoint = None

    def test_nobody_spins(self):
        """Three ranks wait for one that is stopped for less than a fault: their processors rest."""
        run = self.begin("out")
        self.wait_for_step(run, "out", 2)
        pids = self.children(run)
        ticks = lambda: sum(sum(map(int, pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) for p in pids)
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(.3)
        before = ticks()
        time.sleep(1)
        used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
        os.kill(pids[1], signal.SIGCONT)
        run.kill()
        run.wait()
        self.assertLess(used, .15)


class Refused(Processes):
    def refused(self, *flags, **environment):
        return self.run_tool("train", "--data", self.text, "--out", self.out, "--steps", 3, *RUN, *flags,
                             env={**os.environ, **environment})

    def test_flags_that_do_not_fit(self):
        two = ("--mesh", "dp=2", "--processes", 2)
        world = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}
        slurm = {"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "node[07-08]", "TEGULA_MPI_PLUGIN": "/nowhere.so"}
        for flags, environment, code, why in (
                (("--mesh", "dp=2", *TCP), {}, USAGE, ("--transport", "--processes")),
                ((*two, "--address", "127.0.0.1:0"), {}, USAGE, ("--address", "--transport tcp")),
                ((*two, *TCP, "--address", "nowhere"), {}, USAGE, ("'nowhere'", "127.0.0.1:29400")),
                ((*two, "--transport", "mpi"), {}, USAGE, ("mpirun -n 4 tegula train",)),
                (("--mesh", "dp=4", "--transport", "shm"), world, USAGE, ("share no memory", "--processes 4")),
                (("--mesh", "dp=4"), {**world, "TEGULA_MPI_PLUGIN": "/nowhere.so"}, (USAGE, ENVIRONMENT),
                 ("/nowhere.so", "script/bootstrap --mpi", "--processes")),
                (("--mesh", "dp=4", *TCP), world, INPUT, ("TEGULA_COMM_ADDRESS",)),
                (("--mesh", "dp=4", *TCP), {**world, "TEGULA_COMM_ADDRESS": "127.0.0.1:1"}, INPUT, ("TEGULA_COMM_KEY",)),
                ((*TCP,), world, USAGE, ("one rank", "--mesh dp=4")),
                (("--mesh", "dp=6", *TCP), world, USAGE, ("--processes 4", "6 ranks", "take 3")),
                (("--mesh", "dp=4", "--processes", 2, *TCP), world, USAGE, ("4 processes", "--processes is 2")),
                (("--mesh", "dp=4", "--restart", 1, *TCP), world, USAGE, ("--restart", "--processes 4", "--resume")),
                (("--mesh", "dp=2"), slurm, INPUT, ("TEGULA_COMM_ADDRESS=node07:29400", "TEGULA_COMM_KEY"))):
            with self.subTest(flags=flags, environment=environment):
                codes = code if isinstance(code, tuple) else (code,)
                done = self.refused(*flags, **environment)
                self.assertIn(done.returncode, codes, done.stderr)
                self.expect_error(done, done.returncode, *why)

    def test_a_port_that_is_taken_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            done = self.refused("--mesh", "dp=2", "--processes", 2, *TCP, "--address", address)
            self.expect_error(done, INPUT, f"cannot listen at {address}")


class Alone(Processes):
    """Processes that nobody of ours has started, with Slurm's variables."""

    def begin(self, out, n, *flags, steps=3, key=lambda rank: "secret", skip=()):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        runs = []
        for rank in range(n):
            environment = {**os.environ, "SLURM_NTASKS": str(n), "SLURM_PROCID": str(rank), "SLURM_STEP_NODELIST": "localhost",
                           "TEGULA_COMM_ADDRESS": address, "TEGULA_COMM_KEY": key(rank)}
            if rank in skip:
                continue
            run = subprocess.Popen([TEGULA, "train", "--data", str(self.text), "--out", str(self.dir / out), "--steps", str(steps), *RUN, *TCP, *flags],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
            self.addCleanup(run.kill)
            self.addCleanup(run.stderr.close)
            self.addCleanup(run.stdout.close)
            runs.append(run)
        return runs

    def test_they_meet_at_the_address(self):
        self.train("one", "--mode", "exact")
        runs = self.begin("many", 4, "--mode", "exact", "--mesh", "dp=2,tp=2")
        words = [run.communicate(timeout=60) for run in runs]
        self.assertEqual([run.returncode for run in runs], [0] * 4, words)
        self.assertEqual([bool(w[0]) for w in words], [True, False, False, False])
        self.check_counts(json.loads(words[0][0].splitlines()[-1]))
        self.assertEqual(self.files("one"), self.files("many"))

    def test_who_dies_or_stops_is_named_with_its_call_and_all_end(self):
        for sent, name in ((signal.SIGKILL, "has ended without a word"), (signal.SIGSTOP, "has said nothing for 3 seconds")):
            for rank in (0, 2):
                with self.subTest(sent=sent, rank=rank):
                    out = f"{sent} {rank}"
                    runs = self.begin(out, 3, "--mesh", "dp=3", "--batch", "6", steps=100000)
                    metrics = self.dir / out / "metrics.jsonl"
                    end = time.monotonic() + 60
                    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
                        self.assertLess(time.monotonic(), end)
                        time.sleep(.01)
                    time.sleep(.5)  # of the call that is named
                    os.kill(runs[rank].pid, sent)
                    since = time.monotonic()
                    others = [run for i, run in enumerate(runs) if i != rank]
                    words = "".join(run.communicate(timeout=60)[1] for run in others)
                    self.assertLess(time.monotonic() - since, 7)
                    self.assertEqual([run.returncode for run in others], [ENVIRONMENT] * 2, words)
                    # Who was stopped is ended, too.
                    self.assertEqual(runs[rank].wait(timeout=5), -signal.SIGKILL)
                    errors = [line for line in words.splitlines() if line.startswith("tegula: error:")]
                    self.assertEqual(len(errors), 1, words)
                    self.assertRegex(errors[0], rf"rank {rank} \(process {runs[rank].pid} on .*\) {name}")
                    self.assertRegex(errors[0], r"call \d+, \w+ over dp \(step \d+ of train_step\)")

    def test_a_fault_of_all_is_told_once(self):
        runs = self.begin("out", 3, "--mesh", "dp=3")
        words = "".join(run.communicate(timeout=60)[1] for run in runs)
        self.assertEqual(words.count("tegula: error:"), 1, words)
        self.assertIn("--batch 8 cannot be shared evenly by the 3 ranks", words)
        self.assertEqual(runs[0].returncode, INPUT)

    def test_another_key_is_refused(self):
        runs = self.begin("out", 2, "--mesh", "dp=2", key=lambda rank: f"secret {rank}")
        words = runs[1].communicate(timeout=60)[1]
        self.assertEqual(runs[1].returncode, INPUT, words)
        self.assertIn("has another key: set TEGULA_COMM_KEY", words)
        runs[0].kill()
        runs[0].wait()


@unittest.skipUnless(HAS_MPI, "no mpirun, or no plug-in beside the tool")
class Mpi(Processes):
    def mpirun(self, n, *arguments, flags=MPIRUN, environment=ROOT):
        return subprocess.run([*flags, "-n", str(n), *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment})

    def among(self, n):
        raise NotImplementedError

    def on(self, n, out, *flags, steps=3):
        done = self.mpirun(n, TEGULA, "train", "--data", self.text, "--out", self.dir / out, "--steps", steps, *RUN, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_exact_has_the_files_of_one_rank(self):
        self.train("one", "--mode", "exact")
        for mesh, n, more in (("dp=4", 4, ()), ("dp=2,tp=2", 4, ()), ("tp=2,cp=2", 2, ()), ("dp=4", 2, ("--zero", 3))):
            with self.subTest(mesh=mesh, n=n, more=more):
                out = f"{mesh} {n} {more}"
                self.check_counts(self.on(n, out, "--mode", "exact", "--mesh", mesh, *more))
                self.assertEqual(self.files("one"), self.files(out))

    def test_what_to_type_where_mpirun_itself_refuses(self):
        """These are the words of Open MPI, which has started nothing yet."""
        command = (TEGULA, "train", "--data", self.text, *RUN, "--mesh", "dp=64", "--batch", "64")
        done = self.mpirun(64, *command, flags=("mpirun",))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("oversubscribe", done.stderr)
        if os.geteuid() == 0:
            without = {name: "0" for name in ROOT}
            done = self.mpirun(2, *command, environment=without)
            self.assertIn("--allow-run-as-root", done.stderr)

    def test_who_dies_or_stops_is_named_and_all_end(self):
        """A killed one mpirun names itself; for a stopped one it waits for ever."""
        for sent in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(sent=sent):
                out = str(sent)
                run = subprocess.Popen([*MPIRUN, "-n", "4", TEGULA, "train", "--data", str(self.text), "--out", str(self.dir / out), "--steps",
                                        "100000", *RUN, "--mesh", "dp=4"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                       env={**os.environ, **ROOT})
                self.addCleanup(run.kill)
                self.addCleanup(run.stderr.close)
                metrics = self.dir / out / "metrics.jsonl"
                end = time.monotonic() + 60
                while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
                    self.assertLess(time.monotonic(), end)
                    self.assertIsNone(run.poll())
                    time.sleep(.01)
                children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
                ranks = {}
                for pid in map(int, children):
                    found = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
                    if found:
                        ranks[int(found[1])] = pid
                self.assertEqual(sorted(ranks), [0, 1, 2, 3])
                time.sleep(.5)  # of the call that is named
                os.kill(ranks[2], sent)
                since = time.monotonic()
                words = run.communicate(timeout=60)[1]
                self.assertLess(time.monotonic() - since, 7)
                self.assertNotEqual(run.returncode, 0)
                end = time.monotonic() + 5
                while any(pathlib.Path(f"/proc/{pid}").exists() for pid in ranks.values()):
                    self.assertLess(time.monotonic(), end)
                    time.sleep(.05)
                if sent == signal.SIGKILL:
                    self.assertIn("exited on signal 9", words)
                else:
                    self.assertEqual(run.returncode, ENVIRONMENT)
                    self.assertRegex(words, rf"tegula: error: rank 2 \(process {ranks[2]} on .*\) has said nothing for 3 seconds.*"
                                            r"call \d+, \w+ over dp \(step \d+ of train_step\)")


if __name__ == "__main__":
    unittest.main()
