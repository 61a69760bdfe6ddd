#!/usr/bin/env python3
"""Records what must not move unseen, and compares the bits with that record.

    tools/ground_floor.py --check [--only NAME] [--keep FOLDER]
    tools/ground_floor.py --write [--with times,build] [--previous COMMIT=PROGRAM]
    tools/ground_floor.py --list

--check runs 49 small golden runs on a made-up text and compares SHA-256 of their weights, their optimizer's state or
the text they generate with bench/results/ground_floor.json. A landing that moves a hash on purpose runs --write and
names the runs that it prints in CHANGELOG.md. Runs that must end with the same bits (threads, recomputation, blocks,
passes left out, a resumed run) are compared with each other, too, whatever the record says.
  --with times   also instructions (as tools/instructions.py counts them), and times of steps as ratios to those of
                 --previous, in turn: its time by this program's, so above 1 is faster now
  --with build   also seconds of a cold build of `tegula`, and of script/test when everything is built
What --write does not measure anew it keeps; "measured_at" says at which commit each part was measured.

AVX2 kernels run: where there is AMX, bf16 has bits of its own. TEGULA_ISA=portable and avx512 give the same hashes.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]
import builds  # noqa: E402
import instructions  # noqa: E402
import record as results  # noqa: E402

RECORD = ROOT / "bench" / "results" / "ground_floor.json"
SECONDS = 900  # of one command; portable kernels and sanitized builds are slow
# 512 rows a step: sums over them are long enough for the shards of mode exact.
TRAIN = ("--data text.txt --out out --n-layers 2 --d-model 32 --seqlen 64 --batch 8 --steps 6 --warmup 2 --lr 0.01 "
         "--tokenizer bpe:300 --eval-every 0 --save-every 0 --threads 1 --mode exact")
GENERATE = "--model out --max-tokens 100 --overflow slide --threads 1"
# Long enough, of a text short enough, that the likeliest tokens are not one letter again and again.
LEARNED = "--data short.txt --steps 1000 --batch 4 --seqlen 32 --warmup 10 --weight-decay 0"
GPT2 = "train --model gpt2 --n-heads 2"
LLAMA = "train --model llama --n-heads 4 --n-kv-heads 2"
MOE = "train --model moe --n-heads 2 --n-experts 4"
QWEN2 = "train --model qwen2 --n-heads 4 --n-kv-heads 2"
GEMMA2 = "train --model gemma2 --n-heads 4 --n-kv-heads 2 --window 24"
MISTRAL = "train --model mistral --n-heads 4 --n-kv-heads 2 --window 24"
MLP, LSTM = "train --model mlp", "train --model lstm"
MIXED = f"{LLAMA} --dtype bf16 --dropout 0.1 --accumulate 2 --lr-decay-steps 6"
GREEDY = "generate --prompt 'tolemu nai ba' --temperature 0"
SAMPLED = "generate --prompt ba --temperature 0.9 --seed 7"

# Name: the run whose bits it must have, if any, and its commands, to which TRAIN or GENERATE is added.
RUNS = {
    "gpt2": (None, GPT2),
    "gpt2-threads": ("gpt2", f"{GPT2} --threads 2"),
    "gpt2-unfused": ("gpt2", f"{GPT2} --passes -fuse,-loss_grads,-bias_activation,-norm_residual,-merge_products"),
    "gpt2-sqrt": ("gpt2", f"{GPT2} --checkpoint sqrt"),
    "gpt2-resume": ("gpt2", f"{GPT2} --steps 3 --lr-decay-steps 6", f"{GPT2} --lr-decay-steps 6 --resume"),
    "gpt2-bias": (None, f"{GPT2} --bias --tokenizer bytes"),
    "gpt2-dropout": (None, f"{GPT2} --dropout 0.1"),
    "gpt2-dropout-memory": ("gpt2-dropout", f"{GPT2} --dropout 0.1 --memory 2600KiB --threads 2"),
    "gpt2-accumulate": (None, f"{GPT2} --accumulate 3 --steps 4"),
    "gpt2-momentum": (None, f"{GPT2} --optimizer momentum"),
    "gpt2-sgd": (None, f"{GPT2} --optimizer sgd --grad-clip 0 --weight-decay 0"),
    "gpt2-fast": (None, f"{GPT2} --mode fast"),
    "gpt2-fast-blockwise": ("gpt2-fast", f"{GPT2} --mode fast --blockwise 64"),
    "gpt2-bf16": (None, f"{GPT2} --dtype bf16"),
    "gpt2-bf16-memory": ("gpt2-bf16", f"{GPT2} --dtype bf16 --memory 2MiB --threads 2"),
    "gpt2-bf16-fast": (None, f"{GPT2} --dtype bf16 --mode fast"),
    "gpt2-odd": (None, f"{GPT2} --n-heads 3 --d-model 39 --d-ff 67 --seqlen 19 --batch 3 --tokenizer chars"),
    "llama": (None, LLAMA),
    "llama-memory": ("llama", f"{LLAMA} --memory 3MiB --threads 2"),
    "llama-fast": (None, f"{LLAMA} --mode fast"),
    "llama-blockwise": (None, f"{LLAMA} --blockwise 32"),
    "llama-bf16": (None, f"{LLAMA} --dtype bf16 --bias"),
    "llama-bf16-sqrt": ("llama-bf16", f"{LLAMA} --dtype bf16 --bias --checkpoint sqrt"),
    "llama-mixed": (None, MIXED),
    "llama-mixed-resume": ("llama-mixed", f"{MIXED} --steps 3", f"{MIXED} --resume --threads 2"),
    "moe": (None, MOE),
    "moe-threads": ("moe", f"{MOE} --threads 2"),
    "moe-sqrt": ("moe", f"{MOE} --checkpoint sqrt"),
    "moe-bf16": (None, f"{MOE} --dtype bf16 --capacity-factor 0 --experts-per-token 1"),
    "qwen2": (None, QWEN2),
    "qwen2-bf16": (None, f"{QWEN2} --dtype bf16"),
    "gemma2": (None, GEMMA2),
    "gemma2-sqrt": ("gemma2", f"{GEMMA2} --checkpoint sqrt --threads 2"),
    "gemma2-bf16": (None, f"{GEMMA2} --dtype bf16"),
    "mistral": (None, MISTRAL),
    "mistral-accumulate": (None, f"{MISTRAL} --accumulate 2 --steps 4"),
    "mlp": (None, MLP),
    "mlp-bf16-blockwise": (None, f"{MLP} --dtype bf16 --blockwise 64 --accumulate 2"),
    "lstm": (None, LSTM),
    "lstm-memory": ("lstm", f"{LSTM} --memory 1900KiB --threads 2"),
    "lstm-bf16-fast": (None, f"{LSTM} --dtype bf16 --mode fast"),
    "generate-gpt2": (None, f"{GPT2} {LEARNED}", GREEDY),
    "generate-gpt2-threads": ("generate-gpt2", f"{GPT2} {LEARNED} --threads 2", f"{GREEDY} --threads 2"),
    "generate-gpt2-f16": (None, f"{GPT2} {LEARNED}", f"{SAMPLED} --dtype f16 --top-k 20 --top-p 0.9"),
    "generate-llama-bf16": (None, f"{LLAMA} {LEARNED}", f"{SAMPLED} --dtype bf16 --samples 2"),
    "generate-gemma2": (None, f"{GEMMA2} {LEARNED}", GREEDY),
    "generate-mistral": (None, f"{MISTRAL} {LEARNED}", GREEDY),
    "generate-moe": (None, f"{MOE} {LEARNED}", GREEDY),
    "generate-lstm": (None, f"{LSTM} {LEARNED}", f"{SAMPLED} --max-tokens 300"),
}
# Steps of `tegula bench train` whose times are compared, on one thread and on two.
STEPS = {f"{family} {dtype}": f"train --model {family} --dtype {dtype} --seqlen 64 --batch 8 --vocab-size 512"
         for family in ("gpt2", "llama", "moe", "lstm") for dtype in ("f32", "bf16")}


class RunFailed(Exception):
    pass


def commands_of(name):
    """Lists of arguments. Where a flag stands twice, the last one counts."""
    for command in RUNS[name][1:]:
        verb, _, words = command.partition(" ")
        yield [verb, *shlex.split({"train": TRAIN, "generate": GENERATE}[verb]), *shlex.split(words)]


def hash_of_tensors(path):
    """SHA-256 of names, dtypes, shapes and bytes: all of a safetensors file but its metadata."""
    content = path.read_bytes()
    n = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:n])
    table.pop("__metadata__", None)
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode() + content[n:]).hexdigest()


class Golden:
    def __init__(self, tegula, folder, text):
        self.tegula, self.folder, self.text = tegula, pathlib.Path(folder), text
        # What a user has tuned changes no bit, but let it not matter.
        self.environment = {"TEGULA_ISA": "avx2", **os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}

    def run(self, name):
        folder = self.folder / name
        folder.mkdir(parents=True)
        (folder / "text.txt").write_text(self.text)
        (folder / "short.txt").write_text(self.text[:3000])
        for arguments in commands_of(name):
            try:
                done = subprocess.run([self.tegula, *arguments], cwd=folder, env=self.environment, capture_output=True,
                                      timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise RunFailed(f"not done after {SECONDS} s") from None
            if done.returncode:
                last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
                raise RunFailed(f"exit code {done.returncode}: {''.join(last)}")
        if arguments[0] == "generate":
            return {"text": hashlib.sha256(done.stdout).hexdigest()}
        return {part: hash_of_tensors(folder / "out" / "latest" / f"{file}.safetensors")
                for part, file in (("weights", "model"), ("optimizer", "optimizer"))}

    def hashes(self, names):
        """By name, hashes or what went wrong."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = {name: pool.submit(self.run, name) for name in names}
        return {name: job.exception() or job.result() for name, job in jobs.items()}


def parts_that_differ(a, b):
    return [part for part in sorted({*a, *b}, reverse=True) if a.get(part) != b.get(part)]


def broken_promises(name, found, known):
    """What a run says about itself without its own record: that it fails, or has not the bits it must share."""
    if isinstance(found[name], Exception):
        return [f"fails: {found[name]}"]
    same_as = RUNS[name][0]
    other = found.get(same_as, known.get(same_as))
    if not isinstance(other, dict):
        return []
    differing = parts_that_differ(found[name], other)
    return [f"differs from {same_as}: {', '.join(differing)}"] if differing else []


def how_to(name, tegula):
    isa = shlex.quote(os.environ.get("TEGULA_ISA", "avx2"))
    return [f"  tools/ground_floor.py --check --only {name} --keep FOLDER", f"  cd FOLDER/{name}; rm -rf out",
            *(f"  TEGULA_ISA={isa} {shlex.join([tegula, *arguments])}" for arguments in commands_of(name))]


def compare(found, known, tegula):
    """Lines to print, and the names of runs that are not as they should be."""
    lines, bad = [], []
    for name in found:
        problems = broken_promises(name, found, known)
        if name not in known:
            problems.append("not in the record: --write adds it")
        elif isinstance(found[name], dict):
            differing = parts_that_differ(found[name], known[name])
            problems += [f"differs: {', '.join(differing)}"] if differing else []
        lines.append(f"{name:24}{'; '.join(problems) or 'same'}")
        if problems:
            bad.append(name)
            lines += how_to(name, tegula)
    return lines, bad


def seconds_of(*command, **environment):
    start = time.monotonic()
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env={**os.environ, **environment},
                          stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
    return time.monotonic() - start


def times(args):
    commit, _, previous = args.previous.rpartition("=")
    both = [("previous", os.path.abspath(previous)), ("now", args.tegula)]
    shape = argparse.Namespace(rounds=7, repeats=5)
    ratios = {f"{name}, {n} thread{'s' * (n > 1)}": builds.measure(shape, both, work, n)["ratio"]
              for name, work in STEPS.items() for n in (1, 2)}
    with tempfile.TemporaryDirectory() as folder:
        counts = instructions.Works(args.tegula, folder).count()
    return {"ratios": {"to": commit or "not said", **ratios}, "instructions": counts}


def build_and_test():
    with tempfile.TemporaryDirectory() as folder:
        cold = seconds_of("cmake", "--preset", "release", "-B", folder, "-DTEGULA_TESTS=OFF",
                          CCACHE_DISABLE="1")
        cold += seconds_of("cmake", "--build", folder, "--target", "tegula", CCACHE_DISABLE="1")
    seconds_of("script/test", "-N")  # builds, runs nothing
    return {"cold_build_s": round(cold, 1), "tests_s": round(seconds_of("script/test"), 1)}


def write(args, found, old):
    commit = results.commit_of_tree()
    new = {"hashes": found}
    if "times" in args.also:
        new |= times(args)
    if "build" in args.also:
        new |= build_and_test()
    kept = ("hashes", "ratios", "instructions", "cold_build_s", "tests_s")
    measured_at = {**old.get("measured_at", {}), **dict.fromkeys(new, commit)}
    merged = {"commit": commit, "machine": f"{results.processor()}, {os.cpu_count()} cores",
              "made_with": instructions.toolchain(args.tegula),
              "measured_at": {part: measured_at[part] for part in kept if part in measured_at},
              **{part: new.get(part, old.get(part)) for part in kept if part in new or part in old}}
    args.record.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
    known = old.get("hashes", {})
    for name in [name for name in {**known, **found} if known.get(name) != found.get(name)]:
        print(f"{name:24}" + ("new" if name not in known else "gone" if name not in found else
                              "moved: " + ", ".join(parts_that_differ(found[name], known[name]))))
    print(f"{len(found)} runs, written to {args.record}")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare with the record")
    what.add_argument("--write", action="store_true", help="write the record")
    what.add_argument("--list", action="store_true", help="print each run's commands")
    parser.add_argument("--only", metavar="NAME", choices=RUNS, help="check one run")
    parser.add_argument("--keep", metavar="FOLDER", help="leave text, models and reports in this new folder")
    parser.add_argument("--with", dest="also", default="", metavar="times,build", help="what else to measure")
    parser.add_argument("--previous", metavar="COMMIT=PROGRAM", help="the program that times are compared with")
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    args = parser.parse_args()
    args.also = [part for part in args.also.split(",") if part]
    if args.only and not args.check:
        parser.error("--only is for --check: all hashes of a record are of one program")
    if args.also and not args.write or set(args.also) - {"times", "build"}:
        parser.error("--with is for --write, and takes times, build or times,build")
    if ("times" in args.also) != bool(args.previous):
        parser.error("--with times and --previous need each other")
    if args.keep and os.path.exists(args.keep):
        parser.error(f"--keep {args.keep}: it exists already; name a new folder")
    args.tegula = os.path.abspath(args.tegula)
    return args


def main():
    args = read_arguments()
    if args.list:
        for name in RUNS:
            print(f"{name}\n  " + "\n  ".join(shlex.join(["tegula", *arguments]) for arguments in commands_of(name)))
        return 0
    record = json.loads(args.record.read_text(encoding="utf-8")) if args.record.exists() else {}
    known = record.get("hashes", {})
    names = [args.only] if args.only else list(RUNS)
    text = instructions.made_up_text(20_000)
    with tempfile.TemporaryDirectory() as folder:
        found = Golden(args.tegula, args.keep or folder, text).hashes(names)
    if args.write:
        broken = {name: problems for name in names if (problems := broken_promises(name, found, {}))}
        for name, problems in broken.items():
            print("\n".join([f"{name:24}{problems[0]}", *how_to(name, args.tegula)]))
        if broken:
            print("nothing was written")
            return 1
        write(args, found, record)
        return 0
    lines, bad = compare(found, known, args.tegula)
    gone = [] if args.only else [name for name in known if name not in RUNS]
    lines += [f"{name:24}in the record, but no run: --write drops it" for name in gone]
    print("\n".join(lines))
    made_with = instructions.toolchain(args.tegula)
    if bad and record.get("made_with") != made_with:
        print(f"made with {made_with}, the record with {record.get('made_with')}: that may be why")
    return 1 if bad or gone else 0


if __name__ == "__main__":
    sys.exit(main())
