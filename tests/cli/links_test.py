"""Links between ranks that are slowed on purpose: bits stay, what was hidden is printed, `bench comm` finds latency and rate again, its times
are those of the textbook's formulas, and what it measured decides how collectives are done."""

import collections
import json
import math
import os
import unittest

from case import CliTest, USAGE

RUN = ("--batch 8 --seqlen 32 --n-layers 2 --n-heads 4 --d-model 64 --model llama --n-kv-heads 2 --warmup 1 --eval-every 0 --lr 0.01 "
       "--threads 1 --mode exact --steps 3 --json").split()
ALPHA_US, GB_PER_S = 8000, .01


class Links(CliTest):
    def environment(self, **variables):
        return {**os.environ, "XDG_CACHE_HOME": str(self.dir / "cache"), **{name: str(value) for name, value in variables.items()}}

    def slowed(self, latency_us, gb_per_s):
        return self.environment(TEGULA_COMM_LATENCY_US=latency_us, TEGULA_COMM_GB_PER_S=gb_per_s)

    def train(self, out, *flags, env=None):
        return self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.dir / out, *RUN, *flags, env=env or self.environment()))

    def test_bad_values_are_refused(self):
        for name, value in (("TEGULA_COMM_GB_PER_S", "0"), ("TEGULA_COMM_GB_PER_S", "-1"), ("TEGULA_COMM_GB_PER_S", "fast"),
                            ("TEGULA_COMM_GB_PER_S", "1 "), ("TEGULA_COMM_GB_PER_S", "nan"), ("TEGULA_COMM_LATENCY_US", "-1"),
                            ("TEGULA_COMM_LATENCY_US", ""), ("TEGULA_COMM_LATENCY_US", "1e99")):
            with self.subTest(name=name, value=value):
                for command in (("train", "--data", self.text, *RUN, "--mesh", "dp=2"), ("bench", "comm", "--processes", 2)):
                    done = self.run_tool(*command, env=self.environment(**{name: value}))
                    self.expect_error(done, USAGE, f"{name}={value}", "unset it")

    def test_bits_and_counts_stay(self):
        """Then every collective is brought, in the background or not, in threads or processes."""
        for mesh, more in (("dp=2", "--zero 3"), ("tp=2", ""), ("cp=2", ""), ("dp=2,tp=2", "--zero 1")):
            for processes in (1, 2):
                with self.subTest(mesh=mesh, processes=processes):
                    flags = ("--mesh", mesh, "--processes", processes, *more.split(), "--overwrite")
                    self.train("free", *flags)
                    done = self.train("slow", *flags, env=self.slowed(50, 2))
                    summary = json.loads(done.stdout.splitlines()[-1])
                    for rank in summary["ranks"]:
                        for what in ("flops", "sent_bytes", "peak_bytes"):
                            self.assertEqual(rank[what], rank[what + "_planned"])
                    self.assertEqual(self.weights(self.dir / "free"), self.weights(self.dir / "slow"))
                    self.assertRegex(done.stderr, r"links: [0-9.]+ s, [0-9.]+ s of it waited for: -?[0-9.]+ % hidden")
                    self.assertGreater(sum(call["link_s"] for call in summary["links"]["calls"]), 3 * 50e-6)

    def measured(self, *flags, env):
        done = self.expect_ok(self.run_tool("bench", "comm", "--repeats", 3, "--json", *flags, env=env))
        return json.loads(done.stdout.splitlines()[-1])

    def test_latency_and_rate_are_found_again(self):
        """Twice, if whoever else uses this machine has spoilt the first times."""
        try:
            self.check_found()
        except AssertionError:
            self.check_found()

    def check_found(self):
        n = 4
        env = self.slowed(ALPHA_US, GB_PER_S)
        found = self.measured("--processes", n, "--most", "512KiB", env=env)
        alpha, rate = ALPHA_US * 1e-6, GB_PER_S * 1e9
        self.assertAlmostEqual(found["link"]["alpha_s"] / alpha, 1, delta=.15)
        self.assertAlmostEqual(found["link"]["bytes_per_s"] / rate, 1, delta=.15)
        log, share = math.log2(n), (n - 1) / n

        def chain(b):
            """Segments that save what their messages cost."""
            segment = min(b, max(64, math.sqrt(b * alpha * rate / (n - 2))))
            return (n - 2 + math.ceil(b / segment)) * alpha + (b + (n - 2) * segment) / rate

        # [Chan et al. 2007; Thakur et al. 2005]; direct: each pair has a link of its own.
        line = lambda messages, part: lambda b: messages * alpha + part * b / rate
        formulas = {
            ("send_recv", "direct"): line(1, 1), ("broadcast_from", "direct"): line(1, 1), ("broadcast_from", "mst"): line(log, log),
            ("broadcast_from", "ring"): chain, ("broadcast_from", "halving"): line(2 * log, 2 * share),
            ("reduce_to", "direct"): line(1, 1), ("reduce_to", "mst"): line(log, log), ("reduce_to", "ring"): chain,
            ("reduce_to", "halving"): line(2 * log, 2 * share), ("scatter_from", "direct"): line(1, 1 / n),
            ("scatter_from", "mst"): line(log, share), ("gather_to", "direct"): line(1, 1 / n), ("gather_to", "mst"): line(log, share), ("all_gather", "direct"): line(1, 1 / n),
            ("all_gather", "mst"): line(2 * log, log + share), ("all_gather", "ring"): line(n - 1, share),
            ("all_gather", "halving"): line(log, share), ("reduce_scatter", "direct"): line(1, 1 / n),
            ("reduce_scatter", "ring"): line(n - 1, share), ("reduce_scatter", "halving"): line(log, share),
            ("all_reduce", "direct"): line(2, 2 / n), ("all_reduce", "mst"): line(2 * log, 2 * log),
            ("all_reduce", "ring"): line(2 * (n - 1), 2 * share), ("all_reduce", "halving"): line(2 * log, 2 * share),
            ("all_to_all", "direct"): line(1, 1 / n), ("all_to_all", "ring"): line(n - 1, share),
            ("all_to_all", "halving"): line(log, log / 2)}
        self.assertEqual({(row["op"], row["algorithm"]) for row in found["rows"]}, set(formulas))
        wrong, by_kind = [], collections.Counter()
        for row in found["rows"]:
            ratio = row["seconds"] / formulas[row["op"], row["algorithm"]](row["bytes"])
            if not .9 <= ratio <= 1.25:
                wrong.append((row["op"], row["algorithm"], row["bytes"], round(ratio, 3)))
                by_kind[wrong[-1][:2]] += 1
        # Some times others' work on this machine stretches; not those of one algorithm.
        self.assertLessEqual(len(wrong), len(found["rows"]) // 20, wrong)
        self.assertLessEqual(max(by_kind.values(), default=0), 2, wrong)
        # The choice by lines is right where nothing measured is clearly faster; what is chosen is what was measured to be fastest.
        rows = {}
        for row in found["rows"]:
            rows.setdefault((row["op"], row["bytes"]), []).append(row)
        # Among those of one port, too, where lines cross.
        one_port = [[r for r in group if r["algorithm"] != "direct"] for group in rows.values() if len(group) > 1]
        for group in rows.values():
            self.assertEqual([r["chosen"] for r in group], [r["seconds"] == min(o["seconds"] for o in group) for r in group])
        for groups in ([group for group in rows.values() if len(group) > 1], one_port):
            right = 0
            for group in groups:
                fastest = min(r["seconds"] for r in group)
                right += min(group, key=lambda r: r["fitted_seconds"])["seconds"] <= 1.1 * fastest
            self.assertGreaterEqual(right, .95 * len(groups))


if __name__ == "__main__":
    unittest.main()
