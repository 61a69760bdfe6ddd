"""tegula plan --occupancy: what limits a kernel on a GPU that need not be there."""

import json
import unittest

from case import CliTest, INPUT, USAGE


class Occupancy(CliTest):
    def ask(self, *arguments):
        done = self.expect_ok(self.run_tool("plan", "--occupancy", *arguments, "--json"))
        return json.loads(done.stdout)

    def test_numbers_of_a_kernel_of_ones_own(self):
        said = self.ask("threads=256,registers=64,smem=16384", "--target", "h100", "--grid", 1000)
        self.assertEqual((said["target"], said["multiprocessors"]), ("h100", 132))
        [k] = said["kernels"]
        self.assertEqual(k["limits"], {"threads": 8, "blocks": 32, "registers": 4, "shared memory": 13})
        self.assertEqual((k["blocks_per_multiprocessor"], k["limited_by"]), (4, "registers"))
        self.assertEqual(k["active_threads"], 132 * 4 * 256)
        self.assertEqual((k["wave_blocks"], k["whole_waves"], k["tail_blocks"]), (528, 1, 472))
        self.assertAlmostEqual(k["bytes_to_fill"], 600e-9 * 3350e9)
        self.assertAlmostEqual(k["bytes_to_fill_per_thread"], 600e-9 * 3350e9 / (132 * 4 * 256))
        self.assertEqual(k["staged_bytes"], 16384 * 4 * 132)
        half = self.ask("threads=256", "--target", "h100", "--memory-latency", 300)["kernels"][0]
        self.assertAlmostEqual(half["bytes_to_fill"], 300e-9 * 3350e9)

    def test_kernels_by_name(self):
        for gpu, name in (("h100", "attention_sm90"), ("a100", "attention_mma"), ("l4", "matmul_v3")):
            said = self.ask(name, "--target", gpu)
            self.assertTrue(said["kernels"])
            for k in said["kernels"]:
                self.assertIn(name, k["name"])
                self.assertEqual(k["blocks_per_multiprocessor"], min(k["limits"].values()))
                self.assertGreater(k["registers"], 15)
        older = [k["name"] for k in self.ask("_", "--target", "a100")["kernels"]]
        self.assertFalse([name for name in older if "sm90" in name])
        text = self.expect_ok(self.run_tool(
            "plan", "--occupancy", "threads=384,registers=168,smem=230000", "--target", "h200")).stdout
        self.assertIn("limited by registers", text)
        self.assertIn("132 multiprocessors x 1 blocks x 384 threads = 50688", text)
        self.assertIn("600 ns x 4.8 TB/s = 2.88 MB under way", text)
        table = self.expect_ok(self.run_tool("plan", "--occupancy", "matmul_", "--target", "l40s")).stdout
        self.assertIn("limited by", table.splitlines()[1])

    def test_what_is_refused(self):
        for arguments, why in (
                (("no_such_kernel", "--target", "h100"), "has 'no_such_kernel' in its name"),
                (("threads=2048", "--target", "h100"), "1 to 1024"),
                (("threads=x", "--target", "h100"), "none of threads=N"),
                (("threads=256,smem=200000", "--target", "l4"), "l4 has 0 to 101376"),
                (("matmul_", "--target", "zen3"), "no GPU")):
            self.expect_error(self.run_tool("plan", "--occupancy", *arguments), INPUT, why)
        self.expect_error(self.run_tool("plan", "--grid", 5), USAGE, "--occupancy")


if __name__ == "__main__":
    unittest.main()
