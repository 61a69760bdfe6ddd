"""tegula plan MODEL --microbenchmarks: constants fitted to what calls of a device took."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from case import CliTest, INPUT, USAGE

SCRIPT = pathlib.Path("bench/microbenchmarks.py")
H200 = pathlib.Path("bench/results/microbenchmarks_h200.json")
ONE = ("llama3-8b", "--gpus", "1xH200", "--seqlen", 4096, "--batch-tokens", 4096, "--framework", "torch", "--optimizer",
       "adam-pure")
TWO = ("llama3-8b", "--gpus", "2xH200", "--seqlen", 4096, "--batch-tokens", 8192, "--framework", "fsdp", "--fix",
       "dp=2,zero=3,microbatch=1,remat=full")


def width(layout):
    low, high = layout["interval_s"]
    return high / low


class Microbenchmarks(CliTest):
    def plan(self, *arguments):
        return json.loads(self.expect_ok(self.run_tool("plan", *arguments, "--json")).stdout)

    def best(self, *arguments):
        return self.plan(*arguments)["layouts"][0]

    def changed(self, change, of=H200, name="micro.json"):
        """A file whose content `change` has changed."""
        content = json.loads(of.read_text())
        change(content)
        return self.write(name, json.dumps(content))

    def test_an_h200_s_own_say_what_the_table_says(self):
        plan = self.plan(*ONE, "--microbenchmarks", H200)
        table = self.best(*ONE)
        self.assertAlmostEqual(plan["layouts"][0]["step_s"] / table["step_s"], 1, delta=.03)
        said = plan["microbenchmarks"]
        self.assertEqual((said["file"], said["missing"]), (str(H200), []))
        laws = {law["law"]: law for law in said["laws"]}
        rows = json.loads(H200.read_text())
        self.assertEqual(sum(law["rows"] for law in said["laws"]) + said["rows_of_other_dtypes"],
                         sum(len(v) for v in rows.values() if isinstance(v, list)))  # nothing is left out in silence
        self.assertAlmostEqual(laws["products"]["product"], .845, delta=.02)
        self.assertLess(laws["products"]["residual"], .2)
        self.assertIsNone(laws["host module"]["residual"])
        text = self.expect_ok(self.run_tool("plan", *ONE, "--microbenchmarks", H200)).stdout
        self.assertRegex(text, r'measured +by a law a line.*\n +.*"law": "copies"')
        self.assertRegex(text, r'\n +\{"law": "products", "rows": 44, "product": 0.8\d+, "k_half": \d+.*"residual": 0.1\d+\}\n')
        self.assertRegex(text, r'file: ".*microbenchmarks_h200.json"\n +source: "bench/results/layouts')
        self.assertIn("rows_of_other_dtypes: 1\n", text)
        self.assertNotIn("no effect   --microbenchmarks", text)

    def test_half_the_speed_of_products_is_seen_in_the_step(self):
        def slower(content):
            for row in content["products"]:
                row["seconds"] *= 2

        plain, slow = (self.best(*ONE, "--microbenchmarks", f) for f in (H200, self.changed(slower)))
        # Attention, which is a ninth of it, and what is memory's stay.
        self.assertGreater(slow["seconds"]["compute"], 1.6 * plain["seconds"]["compute"])
        self.assertGreater(slow["step_s"], plain["step_s"] + .55 * plain["seconds"]["compute"])
        self.assertAlmostEqual(slow["seconds"]["optimizer"], plain["seconds"]["optimizer"])

    def test_messages_change_a_plan_of_two(self):
        def slower(content):
            for row in content["collectives"]:
                row["seconds"] *= 4

        plain, slow = (self.best(*TWO, "--microbenchmarks", f) for f in (H200, self.changed(slower)))
        self.assertGreater(slow["seconds"]["dp"], 2 * plain["seconds"]["dp"])
        # Groups that share the network: eight at once have a card each, of a node of eight.
        many = ("llama3-8b", "--gpus", "16xH200", "--fix", "dp=2,tp=8,zero=1,microbatch=1", "--batch-tokens", 16384,
                "--seqlen", 8192, "--framework", "megatron")
        link = 50e9

        def network(share):
            rows = [{"op": op, "ranks": 2, "at_once": 8, "bytes": 4**n, "seconds": 2e-5 + 4**n / 2 / (share * link)}
                    for op in ("all_gather", "reduce_scatter") for n in range(8, 16)]
            return self.changed(lambda content: content.update(collectives=rows))

        fast, slow = (self.best(*many, "--microbenchmarks", network(share))["seconds"] for share in (.9, .3))
        self.assertGreater(slow["dp"] / fast["dp"], 2)
        self.assertAlmostEqual(slow["tp"], fast["tp"])

    def test_a_device_of_which_nothing_is_known_gets_a_narrow_interval(self):
        asked = ("gpt2-xl", "--gpus", "1xL40S", "--seqlen", 1024, "--batch-tokens", 8192)
        wide = self.plan(*asked)
        self.assertTrue(any("--microbenchmarks" in note for note in wide["notes"]))

        def of_l40s(content):
            for name in list(content):
                if isinstance(content[name], list) and name not in ("products", "attention", "copies"):
                    del content[name]
            content["device"] = "NVIDIA L40S"
            for row in content["products"] + content["attention"] + content["copies"]:
                row["seconds"] *= 6
            content["products"] = [r for r in content["products"] if r["dtype"] == "bf16" and r["m"] in (2048, 8192)]

        file = self.changed(of_l40s)
        plan = self.plan(*asked, "--microbenchmarks", file)
        self.assertLess(width(plan["layouts"][0]), width(wide["layouts"][0]) - .3)
        self.assertFalse(any("nothing is known" in note for note in plan.get("notes", [])))
        self.assertEqual(plan["microbenchmarks"]["missing"], ["collectives", "constants"])
        # What was measured there is usual there, and can be fixed; what was not cannot.
        for kernel in ("flash2", "cudnn"):
            self.best(*asked, "--microbenchmarks", file, "--fix", f"attention={kernel}")
            self.expect_error(self.run_tool("plan", *asked, "--fix", f"attention={kernel}"), USAGE, "--microbenchmarks")
        # A device of one's own, too.
        hardware = self.write("mine.toml", "[my-card]\nlike = 'l40s'\nbf16-tflops = 400\n")
        mine = self.changed(lambda c: c.update(device="my-card"), file, "mine.json")
        self.assertLess(width(self.best("gpt2-xl", "--gpus", "1xmy-card", *asked[3:], "--hardware", hardware,
                                        "--microbenchmarks", mine)), width(wide["layouts"][0]) - .3)
        # Beside others it stays what it is.
        compared = self.plan(*asked, "--microbenchmarks", file, "--compare-gpus", "L40S,H200")["compare"]
        self.assertEqual(compared[0]["step_s"], plan["layouts"][0]["step_s"])

    def test_serving_is_planned_by_it(self):
        asked = ("llama3-8b", "--gpus", "1xH200", "--serve")

        def slower(content):
            for row in content["copies"]:
                row["seconds"] *= 2

        plain, slow = (self.plan(*asked, "--microbenchmarks", f)["serve"]["layouts"][0]
                       for f in (H200, self.changed(slower)))
        self.assertGreater(slow["tpot_s"], 1.5 * plain["tpot_s"])

    def test_what_is_wrong_is_refused(self):
        def set_row(section, **values):
            return lambda c: c[section][0].update(values)

        def drop(section, key):
            return lambda c: c[section][0].pop(key)

        cases = (
            (lambda c: c.update(format="x"), ("'x'", "bench/microbenchmarks.py")),
            (lambda c: c.update(version=2), ("version 2",)),
            (lambda c: c.update(device="NVIDIA A100-SXM4-80GB"), ("A100-SXM4-80GB", "h200", '"device"')),
            (lambda c: c.update(prodcuts=[]), ("prodcuts", "products")),
            (lambda c: c.update(copies=[]), ("copies", "leave it out")),
            (lambda c: c.update(copies={}), ("copies", "list")),
            (lambda c: c.update(copies=[3]), ("copies[0]", "no object")),
            (set_row("products", seconds=-1), ("products[0]", "-1", "above 0")),
            (set_row("products", seconds="1 ms"), ("products[0]", "1 ms")),
            (set_row("products", milliseconds=3), ("products[0]", "'milliseconds'", "seconds")),
            (set_row("products", m=2.5), ("products[0]", "2.5", "whole")),
            (set_row("products", dtype="bf15"), ("products[0]", "bf15", "bf16")),
            (drop("products", "k"), ("products[0]", "has no k")),
            (set_row("products", seconds=1e-9), ("products[0]", "peaks", "1e-09")),
            (set_row("products", seconds=56.2), ("products[0]", "not believed", "are they seconds")),
            (set_row("copies", bytes=1 << 40), ("copies[0]", "peaks")),
            (set_row("attention", kernel="flash9"), ("attention[0]", "flash9", "flash2")),
            (set_row("attention", mask=True), ("attention[0]", "mask = true", "causal")),
            (set_row("attention", direction="up"), ("attention[0]", "forward, backward")),
            (set_row("attention", seconds=1e-6), ("attention[0]", "peaks")),
            (set_row("collectives", op="gather"), ("collectives[0]", "all_gather")),
            (set_row("collectives", ranks=1), ("collectives[0]", "2 or more")),
            (set_row("collectives", bytes=1 << 30), ("collectives[0]", "peaks")),
            (lambda c: c["constants"][-1].update(value=1.2), ("constants[", "clock", "at most 1")),
            (set_row("constants", what="layer"), ("constants[0]", "layer", "module")),
            (set_row("copies", bytes=1 << 20), ("copies[0]", "cache", "give more")),
            (lambda c: c.update(products=c["products"][:3]), ("products", "3 rows", "4 rows of at least 3")),
            (lambda c: c.update(attention=c["attention"][:5]), ("attention flash2", "too few")),
            (lambda c: [c.pop(k) for k in list(c) if isinstance(c[k], list)], ("no rows",)),
        )
        for change, words in cases:
            with self.subTest(words=words):
                file = self.changed(change)
                self.expect_error(self.run_tool("plan", *ONE, "--microbenchmarks", file), INPUT, str(file), *words)
        self.expect_error(self.run_tool("plan", *ONE, "--microbenchmarks", self.write("x.json", "{")), INPUT, "x.json")
        self.expect_error(self.run_tool("plan", *ONE, "--microbenchmarks", self.dir / "none.json"), INPUT, "none.json")
        self.expect_error(self.run_tool("plan", "llama3-8b", "--microbenchmarks", H200), USAGE, "--gpus")
        self.expect_error(self.run_tool("plan", "llama2-70b", "--gpus", "576xgroq-lpu", "--serve", "--dtype", "int8",
                                        "--microbenchmarks", H200), USAGE, "kernel by kernel")
        # Of a dtype without rows the table's stay, and that is said.
        plan = self.plan(*ONE[:-4], "--dtype", "fp8", "--microbenchmarks", H200)
        self.assertEqual(plan["microbenchmarks"]["missing"], ["products"])

    def script(self, *arguments):
        done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_the_committed_file_is_what_the_raw_results_say(self):
        out = self.dir / "h200.json"
        self.script("--from-layouts", "--out", out)
        self.assertEqual(out.read_text(), H200.read_text())

    def test_what_bench_comm_measures_is_read(self):
        done = self.expect_ok(self.run_tool("bench", "comm", "--processes", 2, "--most", "64KiB", "--repeats", 3, "--json",
                                            env={**os.environ, "XDG_CACHE_HOME": str(self.dir)}))
        table, out = self.write("comm.json", done.stdout), self.dir / "micro.json"
        said = self.script("--from-comm", table, "--device", "two-processes", "--out", out).stderr
        self.assertIn("send_recv", said)
        hardware = self.write("mine.toml", "[two-processes]\nlike = 't4'\ninside-gb-per-s = 200\n")
        plan = self.plan("gpt2", "--gpus", "2xtwo-processes", "--hardware", hardware, "--microbenchmarks", out, "--fix",
                         "dp=2", "--seqlen", 128, "--batch-tokens", 256)
        self.assertEqual({law["law"] for law in plan["microbenchmarks"]["laws"]},
                         {f"{op} within a node" for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")})


if __name__ == "__main__":
    unittest.main()
