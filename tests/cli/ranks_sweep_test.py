"""Steps of training in mode exact on meshes: weights and optimizer state of one rank, byte for byte.

In ctest every pair of a family, dtype, axis, schedule, ZeRO stage, number of micro-batches, length and transport occurs in some run.
Random ones by command: a case is its number's own, a family, sizes, a dtype and settings, one rank's run, and three meshes
of up to 8 ranks that divide it. For 20 minutes by `script/test -C Sweep -R ranks_sweep`.
  TEGULA_SWEEP_SECONDS=S  goes on for so long
  TEGULA_SWEEP_FROM=N     begins at case N
"""

import concurrent.futures
import itertools
import json
import math
import os
import random
import shlex
import shutil
import struct
import subprocess
import time
import unittest

from case import CliTest, TEGULA
from case import SECONDS as LONGEST
from transport_test import HAS_MPI, MPIRUN, ROOT

SECONDS = float(os.environ.get("TEGULA_SWEEP_SECONDS", "0"))
FIRST = int(os.environ.get("TEGULA_SWEEP_FROM", "0"))
MESHES = 3  # of a case

RUN = "--mode exact --warmup 0 --eval-every 0 --save-every 0 --lr 0.01 --json".split()
FILES = ("model.safetensors", "optimizer.safetensors", "config.json", "trainer_state.json")
FAMILIES = ("gpt2", "gpt2", "llama", "qwen2", "mistral", "gemma2", "moe", "moe", "mlp")
BATCHES = (1, 2, 2, 3, 4, 4, 6, 6, 8, 8)
SEQLENS = (64, 248, 256, 264, 320, 512)
AXES = ("dp", "cp", "ep", "tp")

# What once differed: a table that is embedding and head, rounded before its shards were joined; micro-batches.
KNOWN = (
    ("--model gpt2 --n-layers 1 --n-heads 2 --d-model 64 --batch 2 --seqlen 256 --dtype bf16 --steps 1",
     ("dp=2", "tp=2")),
    ("--model gpt2 --n-layers 1 --n-heads 4 --d-model 64 --batch 4 --seqlen 264 --dtype f16 --steps 1 --grad-clip 0",
     ("dp=4", "tp=4", "dp=2,tp=2")),
    ("--model llama --n-layers 1 --n-heads 2 --d-model 32 --batch 2 --seqlen 256 --steps 1 --accumulate 2",
     ("dp=2", "cp=2")),
    ("--model moe --n-experts 2 --n-layers 1 --n-heads 2 --d-model 32 --batch 2 --seqlen 256 --steps 1 --accumulate 2",
     ("tp=2", "ep=2")),
)


def meshes_of(batch, seqlen, has_experts):
    """All that share out sequences and tokens evenly."""
    for sizes in itertools.product(range(1, 9), repeat=len(AXES)):
        n = sizes[0] * sizes[1] * sizes[2] * sizes[3]
        dp, cp, ep, _ = sizes
        if 1 < n <= 8 and batch % (dp * ep) == 0 and seqlen % cp == 0 and (has_experts or ep == 1):
            yield dict(zip(AXES, sizes))


MOE = {"moe": "--n-experts 4 --capacity-factor 1.25", "qwen2_moe": "--n-experts 4", "qwen3_moe": "--n-experts 4"}
EVERY_FAMILY = ("gpt2", "llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "olmo2", "phi3", "smollm3", "starcoder2",
                "gpt_neox", "bert", "mlp", *MOE)
# The parts of a run. Those that are named first are the reference's own.
FACTORS = {
    "family": EVERY_FAMILY,
    "dtype": ("f32", "bf16", "f16"),
    "seqlen": (64, 256),
    "accumulate": (1, 2, 3, 4, 8),
    "mesh": ("dp=2", "dp=4", "tp=2", "tp=4", "cp=2", "ep=2", "dp=2,tp=2", "cp=2,dp=2", "ep=2,dp=2",
             "pp=2", "dp=2,pp=2", "pp=2,tp=2"),
    "schedule": ("", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "chimera", "dualpipe"),
    "zero": (0, 1, 2, 3),
    "transport": ("threads", "shm", "tcp", *(("mpi",) if HAS_MPI else ())),
}
PROCESSES = ("--processes", "2")
TRANSPORTS = {"threads": (), "shm": PROCESSES, "tcp": (*PROCESSES, "--transport", "tcp"), "mpi": ()}
LAUNCHERS = {"mpi": (*MPIRUN, "--bind-to", "none", "-n", "2")}
ALONE = ("family", "dtype", "seqlen", "accumulate")  # what one rank's run is made of


def is_possible(row):
    """Of the factors that a row has so far."""
    mesh, family = row.get("mesh"), row.get("family")
    if mesh and family and "ep" in mesh and family not in MOE:
        return False
    if mesh and row.get("zero") and "dp" not in mesh:
        return False
    schedule, micro_batches = row.get("schedule"), row.get("accumulate")
    if mesh and schedule is not None and bool(schedule) != ("pp" in mesh):
        return False
    if (schedule or "pp" in (mesh or "")) and row.get("zero", 0) > 1:
        return False
    # Two pipelines take halves, DualPipe's of two micro-batches for each rank; dp's ranks share them out.
    least = {"chimera": 2, "dualpipe": 4}.get(schedule, 1)
    if least > 1 and micro_batches:
        return micro_batches % least == 0 and micro_batches // (2 if mesh and "dp" in mesh else 1) >= least
    return True


def layers_of(row):
    """As many as the pipeline has stages."""
    return 4 if row["schedule"] in ("interleaved", "zb-v") else 2 if row["schedule"] else 1


def reference_of(row):
    return (*(row[name] for name in ALONE), layers_of(row))


def completed(row, r):
    """A row with these factors and others at random, or None: nothing goes with them."""
    for name in FACTORS:
        if name in row:
            continue
        values = [v for v in FACTORS[name] if is_possible({**row, name: v})]
        if not values:
            return None
        # Processes that share no memory take longest.
        row = {**row, name: r.choice(values + [v for v in values if v in ("threads", "shm")] * (name == "transport"))}
    return row if is_possible(row) else None


def pairs_of(row):
    return set(itertools.combinations(row.items(), 2))


def every_pair():
    """Rows of which each pair of values that can be together is in one. One by one the best of some that have a pair that
    is missing; of those that are alike one whose reference is known."""
    r = random.Random(5)
    order = list(FACTORS)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(order, 2) for x in FACTORS[a] for y in FACTORS[b]
               if completed({a: x, b: y}, r)}
    rows, known = [], set()
    while missing:
        wanted = sorted(missing, key=str)
        best = None
        for _ in range(60):
            row = completed(dict(r.choice(wanted)), r)
            if row is None:
                continue
            row = {name: row[name] for name in order}
            reference = reference_of(row)
            score = (len(pairs_of(row) & missing), reference in known)
            if best is None or score > best[0]:
                best = (score, row, reference)
        rows.append(best[1])
        known.add(best[2])
        missing -= pairs_of(best[1])
    return rows


def flags_alone(row):
    family = row["family"]
    flags = (f"--model {family} --n-layers {layers_of(row)} --batch 4 --seqlen {row['seqlen']} --dtype {row['dtype']} --steps 1 "
             f"--accumulate {row['accumulate']}")
    flags += " --d-model 16" if family == "mlp" else " --n-heads 4 --d-model 32"
    flags += " --window 24" if family in ("mistral", "gemma2", "gemma3") else ""
    flags += " --loss-scale 256" if row["dtype"] == "f16" else ""
    return (flags + " " + MOE.get(family, "")).split()


class Draw:
    """One case: the flags of one rank's run, and of each mesh's what it has besides."""

    def __init__(self, number):
        self.number = number
        if number < len(KNOWN):
            flags, meshes = KNOWN[number]
            self.flags, self.on_meshes = flags.split(), [["--mesh", m] for m in meshes]
            return
        r = random.Random(number)
        family = r.choice(FAMILIES)
        batch, seqlen = r.choice(BATCHES), r.choice(SEQLENS)
        heads, dtype = r.choice((1, 2, 3, 4, 6, 8)), r.choice(("f32", "bf16", "f16"))
        flags = [f"--model {family} --n-layers {r.choice((1, 1, 2))} --batch {batch} --seqlen {seqlen}",
                 f"--dtype {dtype} --steps {r.choice((1, 2))} --seed {r.randrange(1000)}",
                 f"--tokenizer {r.choice(('chars', 'bytes', 'bpe:300'))}"]
        if dtype == "f16":
            flags.append("--loss-scale 256")
        if family == "mlp":
            flags.append(f"--d-model {r.choice((12, 16, 24))}")
        else:
            flags.append(f"--n-heads {heads} --d-model {8 * heads} --tie-embeddings {r.choice(('true', 'false'))}")
        if family not in ("gpt2", "mlp"):
            flags.append(f"--n-kv-heads {r.choice([k for k in range(1, heads + 1) if heads % k == 0])}")
        if family in ("gpt2", "llama") and r.random() < .5:
            flags.append("--bias")
        if family in ("mistral", "gemma2"):
            flags.append(f"--window {r.choice((24, 100, 1000))}")
        if family == "moe":
            flags.append(f"--n-experts {r.choice((2, 4, 6))} --experts-per-token {r.choice((1, 2))} "
                         f"--capacity-factor {r.choice((0, 1, 1.25))}")
        if r.random() < .3:  # sums over a width that has shards of its own
            flags.append(f"--d-ff {r.choice((512, 528, 768))}")
        if r.random() < .4:
            flags.append(f"--accumulate {r.choice((2, 2, 3))}")
        if r.random() < .3:
            flags.append("--dropout 0.1")
        if r.random() < .3:
            flags.append("--grad-clip 0")
        if r.random() < .2:
            flags.append(f"--optimizer {r.choice(('sgd', 'momentum'))}")
        self.flags = " ".join(flags).split()
        self.on_meshes = [self.on_mesh(r, mesh) for mesh in self.some_meshes(r, batch, seqlen, family, heads)]
        self.on_meshes = [flags + self.in_processes(f"{number} {i}", flags) for i, flags in enumerate(self.on_meshes)]
        if r.random() < .2:
            self.on_meshes.append(["--checkpoint", "sqrt"])

    @staticmethod
    def in_processes(seed, flags):
        """Half of the meshes, ranks shared out as anything divides them."""
        r = random.Random(seed)
        n = math.prod(int(axis.split("=")[1]) for axis in flags[1].split(","))
        divisors = [p for p in range(2, n + 1) if n % p == 0]
        return ["--processes", str(r.choice(divisors))] if r.random() < .5 else []

    @staticmethod
    def some_meshes(r, batch, seqlen, family, heads):
        """Different ones. Rather those whose ranks have one head or one sequence each."""
        every = list(meshes_of(batch, seqlen, family == "moe"))
        tight = [m for m in every if m["tp"] == heads or m["dp"] * m["ep"] == batch]
        chosen = []
        for _ in range(MESHES):
            mesh = r.choice(tight if tight and r.random() < .5 else every)
            if mesh not in chosen:
                chosen.append(mesh)
        return chosen

    @staticmethod
    def on_mesh(r, mesh):
        axes = [(a, n) for a, n in mesh.items() if n > 1]
        r.shuffle(axes)
        flags = ["--mesh", ",".join(f"{a}={n}" for a, n in axes)]
        if mesh["dp"] > 1 and r.random() < .5:
            flags += ["--zero", str(r.choice((1, 2, 3)))]
        if r.random() < .2:
            flags += ["--checkpoint", "sqrt"]
        if r.random() < .2:
            flags += ["--threads", "2"]
        if r.random() < .1:  # passes that keep bits
            flags.append("--passes=-fuse,-loss_grads,-bias_activation,-norm_residual,-merge_products")
        return flags


def tensors(content):
    """Names of a safetensors file's tensors, in the file's order, with dtype and bytes."""
    n, = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + n])
    header.pop("__metadata__", None)
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        yield name, t["dtype"], content[8 + n + begin:8 + n + end]


def first_difference(one, many):
    """Of two safetensors files: the first tensor that differs, and where. None: none does."""
    for (name, dtype, x), (other, _, y) in zip(tensors(one), tensors(many), strict=True):
        if name != other:
            return f"{name} stands where {other} does"
        if x == y:
            continue
        size, form = {"F32": (4, "f"), "F64": (8, "d"), "I64": (8, "q"), "I32": (4, "i")}[dtype]
        count = f"<{len(x) // size}{form}"
        pairs = list(zip(struct.unpack(count, x), struct.unpack(count, y)))
        differ = [i for i in range(len(pairs)) if x[i * size:(i + 1) * size] != y[i * size:(i + 1) * size]]
        at = differ[0]
        return f"{name}: {len(differ)} of {len(pairs)} elements differ; element {at} is {pairs[at][1]!r}, not {pairs[at][0]!r}"
    return None


class RanksSweep(CliTest):
    def setUp(self):
        super().setUp()
        r = random.Random(1)
        words = ["".join(r.choice("abcdefghijklmno") for _ in range(r.randrange(2, 7))) for _ in range(60)]
        self.text = self.write("text.txt", " ".join(r.choice(words) for _ in range(12000)))

    def train(self, out, flags, launcher=()):
        words = ["train", "--data", self.text, "--out", self.dir / out, "--overwrite", "--threads", "1", *RUN, *flags]
        shown = shlex.join([*launcher, "tegula", *(str(w) for w in words if w != "--overwrite")])
        done = subprocess.run([*launcher, TEGULA, *map(str, words)], capture_output=True, text=True, errors="replace",
                              timeout=LONGEST, env={**os.environ, **(ROOT if launcher else {})})
        return done, shown

    def compare(self, name, one, alone, more, out="many", launcher=()):
        """What is wrong with a run on a mesh beside one rank's, in words; None: nothing."""
        done, many = self.train(out, more, launcher)
        why = (done.stderr.strip() if done.returncode != 0
               else self.difference(alone[2], out) or self.other_loss(alone[0], done))
        return why and f"{name}\n  {one}\n  {many}\n  {why}"

    def check(self, draw):
        """What is wrong, a text each; and how many meshes were tried."""
        alone, one = self.train("one", draw.flags)
        if alone.returncode != 0:
            return [f"case {draw.number}: one rank fails\n  {one}\n  {alone.stderr}"], 0
        found = [self.compare(f"case {draw.number}", one, (alone, one, "one"), draw.flags + more) for more in draw.on_meshes]
        return [why for why in found if why], len(draw.on_meshes)

    def difference(self, out="one", other="many"):
        for name in FILES:
            one, many = ((self.dir / o / "latest" / name).read_bytes() for o in (out, other))
            if one == many:
                continue
            if name.endswith(".safetensors"):
                return f"{name}: {first_difference(one, many) or 'its header differs'}"
            return f"{name} differs"
        return None

    @staticmethod
    def other_loss(one, many):
        one, many = (json.loads(done.stdout.splitlines()[-1]) for done in (one, many))
        for what in ("train_loss", "val_loss"):
            if one[what] != many[what]:
                return f"{what} is {many[what]!r}, not {one[what]!r}"
        for rank in many["ranks"]:
            for what in ("flops", "sent_bytes", "peak_bytes"):
                if rank[what] != rank[what + "_planned"]:
                    return f"{what} of a rank is {rank[what]}, planned {rank[what + '_planned']}"
        return None

    def test_every_pair(self):
        """Two runs at a time: the machine that this is for has two cores."""
        rows = every_pair()
        self.assertGreaterEqual(len(rows), 120)
        self.assertGreaterEqual(sum(row["transport"] != "threads" for row in rows), 20)
        references = {reference_of(row): row for row in rows}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = {key: pool.submit(self.train, f"one{i}", flags_alone(row)) for i, (key, row) in enumerate(references.items())}

            def beside(number, row):
                key = reference_of(row)
                alone, one = runs[key].result()
                if alone.returncode != 0:
                    return f"one rank fails\n  {one}\n  {alone.stderr}"
                more = ["--mesh", row["mesh"], *TRANSPORTS[row["transport"]]]
                more += ["--zero", str(row["zero"])] if row["zero"] else []
                more += ["--schedule", row["schedule"]] if row["schedule"] else []
                why = self.compare(f"row {number}", one, (alone, one, f"one{list(references).index(key)}"),
                                   flags_alone(row) + more, f"many{number}", LAUNCHERS.get(row["transport"], ()))
                shutil.rmtree(self.dir / f"many{number}", ignore_errors=True)
                return why

            wrong = [why for why in pool.map(beside, range(len(rows)), rows) if why]
        by_transport = {name: sum(row["transport"] == name for row in rows) for name in FACTORS["transport"]}
        print(f"{len(rows)} runs beside {len(references)} of one rank, {by_transport}: {len(wrong)} differ")
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_what_once_differed_and_random_cases(self):
        begin, number, n_meshes, wrong = time.monotonic(), FIRST, 0, []
        while time.monotonic() - begin < SECONDS if SECONDS > 0 else number < FIRST + len(KNOWN):
            found, n = self.check(Draw(number))
            wrong += found
            n_meshes += n
            number += 1
            if found and SECONDS > 0:
                print("\n".join(found), flush=True)
        print(f"cases {FIRST} to {number - 1}: {n_meshes} meshes, {len(wrong)} differ")
        self.assertGreater(n_meshes, 0)
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_a_difference_is_seen(self):
        """The comparison can fail: another seed, the same shapes."""
        flags = "--model gpt2 --n-layers 1 --n-heads 2 --d-model 16 --batch 2 --seqlen 64 --steps 1".split()
        self.train("one", flags)
        self.train("many", flags)
        self.assertIsNone(self.difference())
        self.train("many", [*flags, "--seed", "7"])
        self.assertRegex(self.difference(), r"^model.safetensors: transformer\.\S+: \d+ of \d+ elements differ")


if __name__ == "__main__":
    unittest.main()
