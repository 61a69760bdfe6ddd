#!/usr/bin/env python3
"""What the planner says of training runs that others have published, beside what they measured.

Nothing is fitted to any of them but one factor a framework. Every row says what its report does not, as far as it matters, and how far its published
number was traced: to the report's own `text`, or to others who `quote` it with the place in it.

    bench/planner_published.py --tegula build/release/tegula            # the tables
    bench/planner_published.py --tegula … --check docs/planner.md docs/lab/planner_runs.md    # are they those of the pages?
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import record

NAIVE = "attention=naive,cp=1,zero=0"
HW, MODEL, CAUSAL, SECONDS = "tflops_hw", "tflops_model", "tflops_causal", "step_s"
RATE, MFU, HFU = "tokens_per_s_per_gpu", "mfu", "hfu"
TEXT, QUOTED = "text", "quoted"

# What reports say of their machines where it is not a preset's.
HARDWARE = """
[h100-hbm2e]
like = "h100"
memory-gb = 96
memory-gb-per-s = 2400
sustained-clock = 0.62

[p4d]
like = "a100-40gb"
between-gb-per-s = 6.25
"""


@dataclasses.dataclass
class Row:
    report: str
    model: str
    gpus: str
    seqlen: int
    sequences: int
    fix: str
    key: str
    published: float
    traced: str
    assumed: str = ""
    dtype: str = "bf16"
    framework: str = ""


class Models:
    """Configurations of models that are no preset, as files."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, config):
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(config))
        return str(file)

    def gpt(self, width, heads, layers, vocab=51200, positions=2048):
        return self.write(f"{width}x{layers}x{vocab}x{positions}", {
            "model_type": "gpt2", "n_embd": width, "n_head": heads, "n_layer": layers, "n_positions": positions,
            "vocab_size": vocab})

    def llama(self, width, heads, layers, feed_forward, vocab):
        return self.write(f"llama{width}x{layers}", {
            "model_type": "llama", "hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers,
            "num_key_value_heads": heads, "intermediate_size": feed_forward, "vocab_size": vocab,
            "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": False})


def megatron(models):
    # Narayanan et al. 2021, table 1: A100s of 80 GB, full recomputation, FLOPs with it (hardware's). Width, heads, layers,
    # tp, pp, devices, batch, TFLOP/s.
    rows = [(2304, 24, 24, 1, 1, 32, 512, 137), (3072, 32, 30, 2, 1, 64, 512, 138),
            (4096, 32, 36, 4, 1, 128, 512, 142), (6144, 48, 40, 8, 1, 256, 1024, 135),
            (8192, 64, 48, 8, 2, 512, 1536, 138), (10240, 80, 60, 8, 4, 1024, 1792, 140),
            (12288, 96, 80, 8, 8, 1536, 2304, 148), (16384, 128, 96, 8, 16, 1920, 2160, 155),
            (20480, 128, 105, 8, 35, 2520, 2520, 163), (25600, 160, 128, 8, 64, 3072, 3072, 163)]
    for width, heads, layers, tp, pp, n, batch, flops in rows:
        turns = ",schedule=one_f_one_b" if pp > 1 else ""
        yield Row(f"Narayanan 2021, {layers} layers of {width}", models.gpt(width, heads, layers), f"{n}xA100", 2048, batch,
                  f"tp={tp},pp={pp},sp=false,remat=full,{NAIVE}{turns}", HW, flops, QUOTED,
                  "micro-batch by search, no interleaving")
    # Table 2: layers, pp, batch, devices, TFLOP/s; micro-batches of one.
    for width, heads, layers, pp, batch, n, flops in (
            (12288, 96, 96, 12, 1536, 384, 153), (12288, 96, 96, 12, 1536, 768, 149), (12288, 96, 96, 12, 1536, 1536, 141),
            (20480, 128, 105, 35, 2240, 560, 171), (20480, 128, 105, 35, 2240, 1120, 167),
            (20480, 128, 105, 35, 2240, 2240, 159)):
        yield Row(f"Narayanan 2021, table 2, {layers} layers on {n}", models.gpt(width, heads, layers), f"{n}xA100", 2048,
                  batch, f"tp=8,pp={pp},microbatch=1,sp=false,remat=full,{NAIVE},schedule=interleaved", HW, flops, QUOTED,
                  "chunks by search")


    # The same table's runs of ZeRO-3 without model parallelism: micro-batches of 4, 2, 1.
    for width, heads, layers, batch, n, micro, flops in (
            (12288, 96, 96, 1536, 384, 4, 144), (12288, 96, 96, 1536, 768, 2, 88), (12288, 96, 96, 1536, 1536, 1, 44),
            (20480, 128, 105, 2560, 640, 4, 138), (20480, 128, 105, 2240, 1120, 2, 98), (20480, 128, 105, 2240, 2240, 1, 48)):
        yield Row(f"Narayanan 2021, table 2, ZeRO-3, {layers} layers on {n}", models.gpt(width, heads, layers), f"{n}xA100", 2048,
                  batch, f"tp=1,pp=1,cp=1,zero=3,microbatch={micro},remat=full,attention=naive", HW, flops, QUOTED,
                  "DeepSpeed of 2021, which gathered into lists of tensors", framework="deepspeed")


def korthikanti(models):
    # Korthikanti et al. 2022, tables 3 and 5: seconds a step, everything recomputed, and with sequence parallelism and
    # selective recomputation. Micro-batches of 4, then of 1; interleaved by 3.
    for name, width, heads, layers, pp, n, batch, full, selective in (
            ("22B", 6144, 64, 48, 1, 8, 4, 1.42, 1.10), ("175B", 12288, 96, 96, 8, 64, 64, 18.13, 13.75),
            ("530B", 20480, 128, 105, 35, 280, 280, 49.05, 37.83), ("1T", 25600, 160, 128, 64, 512, 512, 94.42, 71.49)):
        turns = "" if pp == 1 else ",schedule=one_f_one_b" if pp == 64 else ",schedule=interleaved,interleave=3"
        fix = f"tp=8,pp={pp},microbatch={4 if pp == 1 else 1},{NAIVE}{turns}"
        for what, more, seconds in (("full", "sp=false,remat=full", full),
                                    ("selective", "sp=true,remat=selective", selective)):
            yield Row(f"Korthikanti 2022, {name}, {what}", models.gpt(width, heads, layers), f"{n}xA100", 2048, batch,
                      f"{fix},{more}", SECONDS, seconds, QUOTED)


def trained_models(models):
    # Smith et al. 2022, section 2.4: devices, seconds a step of 1920 sequences.
    for n, seconds in ((2240, 60.1), (2800, 50.2), (3360, 44.4)):
        yield Row(f"Smith 2022, MT-NLG, {n} devices", "mt-nlg-530b", f"{n}xA100", 2048, 1920,
                  f"tp=8,pp=35,microbatch=1,sp=false,remat=full,{NAIVE},schedule=one_f_one_b", SECONDS, seconds, QUOTED,
                  "full recomputation")
    # Le Scao et al. 2022, section 3.4: the fastest configuration.
    yield Row("Le Scao 2022, BLOOM", "bloom-176b", "384xA100", 2048, 2048,
              "tp=4,pp=12,microbatch=2,sp=false,remat=full,attention=naive,cp=1,zero=1,schedule=one_f_one_b", HW, 156, QUOTED,
              "full recomputation")
    # Chowdhery et al. 2022, section 4.1: 238.3K tokens/s on 6,144 chips; 12-way model parallelism, 256-way fully sharded.
    yield Row("Chowdhery 2022, PaLM 540B", "palm-540b", "6144xTPU-v4", 2048, 2048,
              "tp=12,pp=1,cp=1,zero=3,remat=full,attention=naive", RATE, 238.3e3 / 6144, TEXT,
              "both pods as one; micro-batch, sp by search")
    # Zhang et al. 2022, section 2.4: up to 147 TFLOP/s on 992 A100s; fully sharded beside tensor parallelism.
    yield Row("Zhang 2022, OPT-175B", "gpt3-175b", "992xA100", 2048, 992, "tp=8,pp=1,cp=1,zero=3,remat=full,attention=naive",
              HW, 147, TEXT, "992 sequences a step, full recomputation, counted; micro-batch, sp by search")
    # Touvron et al. 2023, section 2.4: 380 tokens/s a device, 4M tokens a step, efficient attention.
    yield Row("Touvron 2023, LLaMA 65B", models.llama(8192, 64, 80, 22016, 32000), "2048xA100", 2048, 2048, "cp=1", RATE, 380,
              TEXT, "the layout by search: it is not said")
    # Zeng et al. 2022, section 2.3: tp 4, pp 8, 4,224 sequences; HFU 43.3 %, MFU 32.5 %.
    yield Row("Zeng 2022, GLM-130B", models.llama(12288, 96, 70, 32768, 150528), "768xa100-40gb", 2048, 4224,
              "tp=4,pp=8,sp=false,remat=full,attention=naive,cp=1,zero=1,schedule=one_f_one_b", HFU, 0.433, QUOTED,
              "causal attention of a decoder; micro-batch by search")
    # Wu et al. 2023, table 4: 32.5 s a step of 2,048 sequences on 64 · 8 A100s of 40 GB, fully sharded.
    yield Row("Wu 2023, BloombergGPT", models.gpt(7680, 40, 70, 131072), "512xp4d", 2048, 2048,
              "tp=1,pp=1,cp=1,zero=3,remat=full,attention=naive", SECONDS, 32.5, QUOTED,
              "sharded over all; 400 Gb/s a node; micro-batch by search")
    # Jiang et al. 2024, abstract: 55.2 % MFU of a 175B model on 12,288 devices; the layout from its section 6.
    yield Row("Jiang 2024, MegaScale 175B", "gpt3-175b", "12288xA100", 2048, 6144,
              "tp=8,pp=8,cp=1,sp=true,microbatch=1,schedule=interleaved,interleave=6,remat=selective", MFU, 0.552, QUOTED,
              "layout and 6,144 sequences from memory; its parallel blocks and windows not in it")


def llama3():
    # Llama Team 2024, table 4: devices, cp, tokens a sequence, TFLOP/s; 16M tokens a step. It says that nothing is
    # recomputed, and frees what it can early; the planner would not fit that.
    for n, cp, seqlen, flops in ((8192, 1, 8192, 430), (16384, 1, 8192, 400), (16384, 16, 131072, 380)):
        for key in (MODEL, CAUSAL):
            yield Row(f"Llama Team 2024, 405B, {n} devices, cp {cp}", "llama3-405b", f"{n}xH100", seqlen,
                      (16 << 20) // seqlen, f"tp=8,pp=16,cp={cp},context=zigzag,sp=true,microbatch=1,schedule=interleaved", key, flops,
                      QUOTED, "chunks and recomputation by search; FLOPs over "
                      + ("all keys" if key == MODEL else "keys that are seen"))


def frameworks(models):
    # pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3: FSDP with torch.compile.
    for n, rate in ((8, 6667), (128, 6514)):
        yield Row(f"torchtitan 2024, Llama 3.1 8B on {n}", "llama3-8b", f"{n}xh100-hbm2e", 8192, 2 * n,
                  "tp=1,pp=1,cp=1,zero=3,microbatch=2,remat=selective", RATE, rate, TEXT,
                  "its H100 of 500 W and 2.4 TB/s: .62 of the clock, power as its 2.2nd power")
    # mosaicml/llm-foundry, scripts/train/benchmarking/README.md: width, heads, layers, devices, micro-batch, sequences a
    # step, recomputation, tokens/s a device; FULL_SHARD.
    for name, width, heads, layers, n, micro, batch, remat, rate in (
            ("7B", 4096, 32, 32, 8, 6, 48, "none", 10643), ("13B", 5120, 40, 40, 64, 2, 128, "none", 4800),
            ("30B", 7168, 56, 48, 32, 14, 1344, "full", 2308), ("70B", 8192, 64, 80, 64, 8, 2048, "full", 1039)):
        yield Row(f"MosaicML 2023, MPT {name} on {n}", models.gpt(width, heads, layers, 50368), f"{n}xH100", 2048, batch,
                  f"tp=1,pp=1,cp=1,zero=3,microbatch={micro},remat={remat}", RATE, rate, TEXT,
                  "400 Gb/s a device between nodes")
    # NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md, 25.11 on DGX H100 in FP8.
    for name, n, batch, fix, rate in (
            ("8b", 8, 128, "tp=1,pp=1,cp=1,zero=3", 14451),
            ("70b", 64, 128, "tp=4,pp=8,cp=1,schedule=interleaved,interleave=5", 1602),
            ("405b", 1024, 512, "tp=8,pp=8,cp=2,context=zigzag,schedule=interleaved,interleave=8", 292)):
        yield Row(f"Megatron-Bridge 25.11, Llama 3 {name.upper()} on {n}", f"llama3-{name}", f"{n}xH100", 8192, batch,
                  f"{fix},microbatch=1", RATE, rate, TEXT, "ZeRO, sp, recomputation by search", "fp8")


# Whose conventions a report's runs follow (--framework), where it says; the others: mixed precision by the book.
FRAMEWORKS = {"Narayanan 2021": "megatron", "Korthikanti 2022": "megatron", "Smith 2022": "deepspeed", "Le Scao 2022": "deepspeed",
              "Zeng 2022": "deepspeed", "Megatron-Bridge 25.11": "megatron", "Wu 2023": "deepspeed", "Zhang 2022": "fsdp",
              "Touvron 2023": "fsdp", "MosaicML 2023": "fsdp", "torchtitan 2024": "torchtitan"}


def all_rows(folder):
    models = Models(folder)
    for rows in (megatron(models), korthikanti(models), trained_models(models), llama3(), frameworks(models)):
        for row in rows:
            row.framework = row.framework or next((f for report, f in FRAMEWORKS.items() if row.report.startswith(report)), "")
            yield row


# Seconds: Pope et al. 2022, tables 2 and 3 (weights of int8 there beside activations of bf16), whose abstract has 29 ms a
# token; and what we measured on one H200 with torch.compile under a CUDA graph, 2026-11.
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


def predict(tegula, hardware, row):
    """A line of the table; planned over published seconds, and whether the run is inside its interval."""
    conventions = ["--framework", row.framework] if row.framework else ["--keeps", "mixed"]
    done = subprocess.run([tegula, "plan", row.model, "--gpus", row.gpus, "--seqlen", str(row.seqlen), "--hardware", hardware,
                           "--batch-tokens", str(row.seqlen * row.sequences), "--fix", row.fix, "--dtype", row.dtype,
                           *conventions, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return f"| {row.report} | {row.key} | {row.published} | does not fit | | | {row.traced} | {row.assumed} |", None
    plan = json.loads(done.stdout)
    layout = plan["layouts"][0]
    if row.key == CAUSAL:
        # Without the keys that causal attention never sees: 405B has 126 layers of 16,384.
        unseen = 4 * (row.seqlen - 1) / 2 * 16384 * 126 / plan["flops_per_token_forward"]
        layout[CAUSAL] = layout[MODEL] * (1 - unseen)
    low, high = sorted(layout[row.key] * (layout["step_s"] / s if row.key != SECONDS else s / layout["step_s"])
                       for s in layout["interval_s"])
    ratio = layout[row.key] / row.published
    is_inside = low <= row.published <= high
    result = {"report": re.match(r"\D*[\d.]+", row.report)[0], "framework": row.framework, "key": row.key,
              "ratio": ratio if row.key == SECONDS else 1 / ratio, "factor": plan["job"]["framework_factor"],
              "inside": is_inside, "width": high / low}
    return (f"| {row.report} | {row.key} | {row.published:.4g} | {layout[row.key]:.4g} ({low:.4g} to {high:.4g}) | "
            f"{100 * (ratio - 1):+.1f} % | {'yes' if is_inside else 'no'} | {row.traced} | {row.assumed} |"), result


def predictions(tegula):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        hardware = folder / "hardware.toml"
        hardware.write_text(HARDWARE)
        return [predict(tegula, str(hardware), row) for row in all_rows(folder)]


def by_report(results):
    """Of Llama's runs, which count over all keys and over seen ones, the latter alone: the seconds are the same."""
    reports = {}
    for r in results:
        if not r["report"].startswith("Llama Team") or r["key"] == CAUSAL:
            reports.setdefault(r["report"], []).append(r)
    return reports


def mean_ratio(rows, factor=lambda row: row["factor"]):
    """Planned over published seconds, with a factor for each row in place of the framework's own."""
    return statistics.geometric_mean(r["ratio"] / r["factor"] * factor(r) for r in rows)


FACTOR_FROM = {"torchtitan": "fsdp"}  # the same library


def factor_of(results, framework, without=""):
    """Framework::factor, by the means of all reports or of all but one, and how many they are."""
    ratios = []
    for name, rows in by_report(results).items():
        mine = [r for r in rows if r["framework"] == framework]
        if mine and name != without:
            ratios.append(mean_ratio(mine, lambda row: 1))
    known = framework and ratios
    return (min(1.15, max(1, 1 / statistics.geometric_mean(ratios))) if known else 1), len(ratios)


def from_the_others(results):
    """By report: its ratio with the factors that the other reports give."""
    return {name: mean_ratio(rows, lambda r, name=name: factor_of(results, FACTOR_FROM.get(r["framework"], r["framework"]), name)[0])
            for name, rows in by_report(results).items()}


def factors(results):
    lines = ["| framework | reports | factor |", "| --- | --- | --- |"]
    for framework in sorted({r["framework"] for r in results} - {"", *FACTOR_FROM}):
        used = next(r["factor"] for r in results if r["framework"] == framework)
        factor, n = factor_of(results, framework)
        lines.append(f"| {framework} | {n} | {factor:.2f} (used: {used:.2f}) |")
    return "\n".join(lines)


def percent(x):
    return f"{100 * x:+.1f} %"


def votes(errors):
    """Each report one vote."""
    sizes = sorted(map(abs, errors))
    at = .95 * (len(sizes) - 1)
    low = sizes[int(at)]
    most = low + (at - int(at)) * (sizes[min(int(at) + 1, len(sizes) - 1)] - low)
    return (f"median of the errors' sizes {100 * statistics.median(sizes):.1f} %, 95th percentile {100 * most:.1f} %, largest "
            f"{100 * sizes[-1]:.1f} %, mean signed {percent(statistics.mean(errors))}")


def summary_of(predicted):
    results = [r for _, r in predicted if r]
    reports, others = by_report(results), from_the_others(results)
    lines = ["| report | conventions | runs | error of seconds | with the others' factor | inside the interval |",
             "| --- | --- | --- | --- | --- | --- |"]
    for name, rows in reports.items():
        conventions = ", ".join(sorted({r["framework"] or "by the book" for r in rows}))
        lines.append(f"| {name} | {conventions} | {len(rows)} | {percent(mean_ratio(rows) - 1)} | "
                     f"{percent(others[name] - 1)} | {sum(r['inside'] for r in rows)} |")
    lines += ["", f"{len(results)} of {len(predicted)} runs of {len(reports)} reports fit. Each report one vote (the mean of its runs), "
              f"with the others' factor: {votes([x - 1 for x in others.values()])}. {sum(r['inside'] for r in results)} of {len(results)} "
              f"are inside their intervals, whose high over low is {statistics.median(r['width'] for r in results):.2f} in the median."]
    return "\n".join(lines)


def table_of(tegula, predicted):
    lines = ["| report | quantity | published | planned (interval) | error | inside | traced to | not said, taken as |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |", *(line for line, _ in predicted), "",
             factors([r for _, r in predicted if r])]
    served = [predict_serving(tegula, row) for row in SERVING]
    lines += ["", "| serving | quantity | published | planned | error | not said, taken as |",
              "| --- | --- | --- | --- | --- | --- |", *(line for line, _ in served)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--check", nargs=2, metavar=("PAGE", "RUNS"))
    arguments = parser.parse_args()
    predicted = predictions(arguments.tegula)
    pages = arguments.check or (None, None)
    failed = record.show(summary_of(predicted), pages[0])
    if not arguments.check:
        print()
    return record.show(table_of(arguments.tegula, predicted), pages[1]) or failed


if __name__ == "__main__":
    sys.exit(main())
