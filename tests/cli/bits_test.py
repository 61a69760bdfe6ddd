"""Training leaves the same bits for any number of threads, on every instruction set here and without
passes that keep them: not printed numbers, but SHA-256 of all weights and of all of the optimizer's
state."""

import hashlib
import os
import unittest

from case import CliTest

# 192 rows a step: several blocks and shards of every kernel that sums over rows.
RUN = ("--steps 3 --batch 6 --seqlen 32 --n-layers 1 --n-heads 4 --d-model 64 --warmup 1 "
       "--eval-every 0 --lr 0.01").split()
THREADS = (1, 2, 16)


class Bits(CliTest):
    def instruction_sets(self):
        lines = self.expect_ok(self.run_tool("doctor")).stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("instruction sets"))
        found = []
        for line in lines[at:]:
            name, colon, rate = line.removeprefix("instruction sets").strip().partition(":")
            if not colon or (found and not line.startswith(" ")):
                break
            if "absent" not in rate:
                found.append(name)
        return found

    def hashes(self, isa, threads, flags):
        out = self.dir / f"{isa}-{threads}"
        self.expect_ok(self.run_tool("train", "--data", self.text, "--out", out, *RUN, *flags,
                                     "--threads", threads, env={**os.environ, "TEGULA_ISA": isa}))
        return self.sums_of(out)

    @staticmethod
    def sums_of(out):
        return tuple(hashlib.sha256((out / "latest" / name).read_bytes()).hexdigest()
                     for name in ("model.safetensors", "optimizer.safetensors"))

    def check(self, *flags):
        sets = self.instruction_sets()
        self.assertIn("portable", sets)
        found = {(isa, n): self.hashes(isa, n, flags) for isa in sets for n in THREADS}
        for run, hashes in found.items():
            self.assertEqual(hashes, found["portable", 1], f"{run}, {' '.join(flags)}")

    def test_gpt2_with_dropout(self):
        self.check("--model", "gpt2", "--dropout", "0.1")

    def test_llama(self):
        self.check("--model", "llama", "--n-kv-heads", "2")

    # A table that is embedding and head: without dce what its two gradients were is still there.
    def test_exact_without_dce(self):
        found = {}
        for passes in ((), ("--passes=-dce",)):
            out = self.dir / f"exact{len(passes)}"
            self.expect_ok(self.run_tool(
                "train", "--data", self.text, "--out", out, *RUN, "--mode", "exact", "--model",
                "gpt2", "--tie-embeddings", "true", "--batch", "4", "--seqlen", "64", *passes))
            found[passes] = self.sums_of(out)
        self.assertEqual(*found.values())


if __name__ == "__main__":
    unittest.main()
