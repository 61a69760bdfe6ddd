"""Training steps that several scripts time, and Tegula's side of them."""

import record

SETTINGS = [
    # name, layers, heads, width, seqlen, batch, vocabulary, dtype
    ("nanoGPT's CPU setting", 4, 4, 128, 64, 12, 65, "f32"),
    ("char GPT, 6 layers, d 384", 6, 6, 384, 256, 12, 65, "f32"),
    ("GPT-2 124M, bf16", 12, 12, 768, 1024, 1, 50257, "bf16"),
    ("GPT-2 124M, decode", 12, 12, 768, 1024, 1, 50257, "decode"),
    ("GPT-2 124M, f32", 12, 12, 768, 1024, 1, 50257, "f32"),
]

RECURRENT = [
    ("LSTM, 2 layers, d 128", 2, 1, 128, 64, 12, 65, "f32"),
    ("LSTM, 2 layers, d 512", 2, 1, 512, 64, 12, 65, "f32"),
]


def tegula_step(args, setting, *flags):
    """What `tegula bench` says of a step, or of decoding a token; args.tegula, .threads and .repeats are read."""
    _, layers, heads, width, seqlen, batch, vocab, dtype = setting
    decodes = dtype == "decode"
    model = ["lstm"] if setting in RECURRENT else ["gpt2", "--n-heads", heads]
    return record.last_json(
        args.tegula, "bench", "generate" if decodes else "train", "--model", *model, "--n-layers", layers, "--d-model",
        width, "--seqlen", seqlen, "--batch", batch, "--vocab-size", vocab, "--dtype", "bf16" if decodes else dtype,
        "--threads", args.threads, "--repeats", args.repeats, "--json", *(["--cold"] if decodes else []), *flags)
