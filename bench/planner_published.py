#!/usr/bin/env python3
"""What the planner says of training runs that others have published, beside what they measured.

Nothing is fitted to any of them. Every row says what its report does not, as far as it matters.

    bench/planner_published.py --tegula build/release/tegula            # the table
    bench/planner_published.py --tegula … --check docs/planner.md       # is it that of the page?
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

# Narayanan et al. 2021, table 1: A100s of 80 GB, full recomputation, FLOPs with it (hardware's).
# Width, heads, layers, tp, pp, devices, batch, TFLOP/s.
MEGATRON = [(2304, 24, 24, 1, 1, 32, 512, 137), (3072, 32, 30, 2, 1, 64, 512, 138),
            (4096, 32, 36, 4, 1, 128, 512, 142), (6144, 48, 40, 8, 1, 256, 1024, 135),
            (8192, 64, 48, 8, 2, 512, 1536, 138), (10240, 80, 60, 8, 4, 1024, 1792, 140),
            (12288, 96, 80, 8, 8, 1536, 2304, 148), (16384, 128, 96, 8, 16, 1920, 2160, 155),
            (20480, 128, 105, 8, 35, 2520, 2520, 163), (25600, 160, 128, 8, 64, 3072, 3072, 163)]
# Korthikanti et al. 2022, tables 3 and 5: seconds a step, everything recomputed, and with sequence
# parallelism and selective recomputation. Micro-batches of 4, then of 1; interleaved by 3.
KORTHIKANTI = [("22B", 6144, 64, 48, 1, 8, 4, 1.42, 1.10), ("175B", 12288, 96, 96, 8, 64, 64, 18.13, 13.75),
               ("530B", 20480, 128, 105, 35, 280, 280, 49.05, 37.83),
               ("1T", 25600, 160, 128, 64, 512, 512, 94.42, 71.49)]
# Smith et al. 2022, section 3.2: devices, seconds a step of 1920 sequences.
MT_NLG = [(2240, 60.1), (2800, 50.2), (3360, 44.4)]
# Le Scao et al. 2022, section 3.3.1: the fastest configuration's TFLOP/s.
# Llama Team 2024, table 4: devices, cp, tokens a sequence, TFLOP/s; 16M tokens a step.
LLAMA = [(8192, 1, 8192, 430), (16384, 1, 8192, 400), (16384, 16, 131072, 380)]

NAIVE = "attention=naive,cp=1,zero=0"
HARDWARE, MODEL, CAUSAL, SECONDS = "tflops_hw", "tflops_model", "tflops_causal", "step_s"


def gpt(folder, width, heads, layers):
    file = folder / f"{width}x{layers}.json"
    file.write_text(json.dumps({"model_type": "gpt2", "n_embd": width, "n_head": heads,
                                "n_layer": layers, "n_positions": 2048, "vocab_size": 51200}))
    return str(file)


def rows(folder):
    """(report, model, devices, seqlen, sequences, --fix, key, published, assumed)"""
    for width, heads, layers, tp, pp, n, batch, flops in MEGATRON:
        turns = ",schedule=one_f_one_b" if pp > 1 else ""
        yield (f"Narayanan 2021, {layers} layers of {width}", gpt(folder, width, heads, layers),
               f"{n}xA100", 2048, batch, f"tp={tp},pp={pp},sp=false,remat=full,{NAIVE}{turns}",
               HARDWARE, flops, "micro-batch by search, no interleaving")
    for name, width, heads, layers, pp, n, batch, full, selective in KORTHIKANTI:
        turns = "" if pp == 1 else ",schedule=one_f_one_b" if pp == 64 else ",schedule=interleaved,interleave=3"
        fix = f"tp=8,pp={pp},microbatch={4 if pp == 1 else 1},{NAIVE}{turns}"
        for what, more, seconds in (("full", "sp=false,remat=full", full),
                                    ("selective", "sp=true,remat=selective", selective)):
            yield (f"Korthikanti 2022, {name}, {what}", gpt(folder, width, heads, layers), f"{n}xA100",
                   2048, batch, f"{fix},{more}", SECONDS, seconds, "")
    for n, seconds in MT_NLG:
        yield (f"Smith 2022, {n} devices", "mt-nlg-530b", f"{n}xA100", 2048, 1920,
               f"tp=8,pp=35,microbatch=1,sp=false,remat=full,{NAIVE},schedule=one_f_one_b", SECONDS,
               seconds, "full recomputation")
    yield ("Le Scao 2022, BLOOM", "bloom-176b", "384xA100", 2048, 2048,
           "tp=4,pp=12,microbatch=2,sp=false,remat=full,attention=naive,cp=1,zero=1,schedule=one_f_one_b",
           HARDWARE, 156, "full recomputation")
    # It says that nothing is recomputed, and frees what it can early; the planner would not fit that.
    for n, cp, seqlen, flops in LLAMA:
        for key in (MODEL, CAUSAL):
            yield (f"Llama Team 2024, 405B, {n} devices, cp {cp}", "llama3-405b", f"{n}xH100", seqlen,
                   (16 << 20) // seqlen, f"tp=8,pp=16,cp={cp},sp=true,microbatch=1,schedule=interleaved", key, flops,
                   "chunks and recomputation by search; FLOPs over "
                   + ("all keys" if key == MODEL else "keys that are seen"))


# Seconds: Pope et al. 2022, tables 2 and 3 (weights of int8 there beside activations of bf16); and
# what we measured on one H200 with torch.compile under a CUDA graph, 2026-11.
SERVING = [
    ("Pope 2022, PaLM 540B, prefill", "palm-540b", "64xTPU-v4", "int8", 2047, 1, 1, "ttft_s", 0.29, "caches of int8"),
    ("Pope 2022, PaLM 540B, decoding", "palm-540b", "64xTPU-v4", "int8", 1984, 64, 64, "tpot_s", 0.0285,
     "caches of int8"),
    ("measured, Llama 2 7B", "llama2-7b", "1xH200", "bf16", 128, 128, 1, "tpot_s", 1 / 220, "a context of 192"),
    ("measured, Llama 3 8B", "llama3-8b", "1xH200", "bf16", 2016, 64, 1, "tpot_s", 1 / 206, ""),
    ("measured, Llama 3 8B, batch of 64", "llama3-8b", "1xH200", "bf16", 2016, 64, 64, "tpot_s", 64 / 6420, "")]


def predict_serving(tegula, row):
    name, model, devices, dtype, prompt, output, batch, key, published, assumed = row
    done = subprocess.run([tegula, "plan", model, "--gpus", devices, "--serve", "--dtype", dtype, "--prompt",
                           str(prompt), "--output", str(output), "--batch", str(batch), "--json"],
                          capture_output=True, text=True, check=True)
    layouts = json.loads(done.stdout)["serve"]["layouts"]
    whole = max(layouts, key=lambda layout: layout["n"])
    error = whole[key] / published - 1
    return (f"| {name} | {key} | {published:.4g} | {whole[key]:.4g} | {100 * error:+.1f} % | {assumed} |"), error


def predict(tegula, row):
    name, model, devices, seqlen, sequences, fix, key, published, assumed = row
    done = subprocess.run([tegula, "plan", model, "--gpus", devices, "--seqlen", str(seqlen),
                           "--batch-tokens", str(seqlen * sequences), "--fix", fix, "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        return f"| {name} | {key} | {published} | does not fit | | | {assumed} |", None
    plan = json.loads(done.stdout)
    layout = plan["layouts"][0]
    # Llama's convention may be either: without the keys that its causal attention never sees.
    unseen = 4 * (seqlen - 1) / 2 * 16384 * 126 / plan["flops_per_token_forward"]
    layout[CAUSAL] = layout[MODEL] * (1 - unseen)
    low, high = sorted(layout[key] * (layout["step_s"] / s if key != SECONDS else s / layout["step_s"])
                       for s in layout["interval_s"])
    error = layout[key] / published - 1
    inside = "yes" if low <= published <= high else "no"
    return (f"| {name} | {key} | {published} | {layout[key]:.4g} ({low:.4g} to {high:.4g}) | "
            f"{100 * error:+.1f} % | {inside} | {assumed} |"), error


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--check", metavar="PAGE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [predict(arguments.tegula, row) for row in rows(pathlib.Path(folder))]
    lines = ["| report | quantity | published | planned (interval) | error | inside | not said, taken as |",
             "| --- | --- | --- | --- | --- | --- | --- |", *(line for line, _ in results)]
    errors = sorted(abs(error) for _, error in results if error is not None)
    lines += ["", f"{len(errors)} of {len(results)} runs fit; the median of |error| is "
              f"{100 * errors[len(errors) // 2]:.1f} %, the largest {100 * errors[-1]:.1f} %."]
    served = [predict_serving(arguments.tegula, row) for row in SERVING]
    lines += ["", "| serving | quantity | published | planned | error | not said, taken as |",
              "| --- | --- | --- | --- | --- | --- |", *(line for line, _ in served)]
    table = "\n".join(lines)
    if not arguments.check:
        print(table)
        return 0
    if table in pathlib.Path(arguments.check).read_text(encoding="utf-8"):
        return 0
    print(f"{arguments.check} has another table than the tool prints; it should be\n{table}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
