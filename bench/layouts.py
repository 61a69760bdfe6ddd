"""The models and layouts that bench/layouts_torch.py executes and bench/planner_layouts.py plans."""

# layers, width, heads, key heads, hidden width, vocabulary
MODELS = {
    "125m": (12, 768, 12, 12, 3072, 50304),
    "350m": (24, 1024, 16, 16, 2816, 32000),
    "760m": (24, 1536, 16, 16, 4096, 50304),
    "1b": (22, 2048, 32, 4, 5632, 32000),
    "1b-wide-vocabulary": (16, 2048, 32, 8, 8192, 128256),
    "3b": (28, 3072, 24, 8, 8192, 128256),
    "8b": (32, 4096, 32, 8, 14336, 128256),
    # Of the fresh sets alone.
    "200m": (16, 896, 14, 14, 2560, 32000),
    "500m": (24, 896, 14, 2, 4864, 151936),
    "1.5b": (28, 1536, 12, 2, 8960, 151936),
    "1.7b": (28, 2048, 16, 8, 6144, 151936),
    "2.7b": (32, 2560, 20, 20, 6912, 50304),
    "7b": (32, 4096, 32, 32, 11008, 32000),
    "300m": (20, 1024, 16, 4, 4096, 49152),
    "900m": (24, 1792, 14, 2, 4864, 65536),
    "1.2b": (18, 2304, 18, 6, 6144, 100352),
    "2b": (26, 2560, 40, 8, 6912, 32000),
    "4b": (36, 2560, 20, 4, 9728, 151936),
    "6b": (30, 4096, 32, 4, 11008, 64000),
}


def case(model, seqlen, batch, dtype="bf16", remat="none", attention="flash2", loss="whole", compiled=False,
         parallel="none", library="torch"):
    return {"model": model, "seqlen": seqlen, "batch": batch, "dtype": dtype, "remat": remat, "attention": attention,
            "loss": loss, "compiled": compiled, "parallel": parallel, "library": library}


# dtype: "bf16" holds weights, gradients and optimizer state so; "amp" holds them in f32 and multiplies in bf16.
ONE = [
    case("125m", 512, 32), case("125m", 1024, 32, "amp"), case("125m", 1024, 64), case("125m", 2048, 16, "amp", "full"),
    case("125m", 4096, 8), case("125m", 8192, 4, "amp", "none", "cudnn"), case("125m", 16384, 2, "bf16", "full"),
    case("125m", 32768, 1, "bf16", "none", "cudnn"), case("125m", 1024, 32, compiled=True),
    case("125m", 1024, 16, "amp", attention="naive"),
    case("350m", 512, 64), case("350m", 1024, 16, "amp"), case("350m", 2048, 16), case("350m", 2048, 16, "amp", "full"),
    case("350m", 4096, 8, "bf16", "none", "cudnn"), case("350m", 8192, 4, "bf16", "full"),
    case("350m", 16384, 2, "amp", "full", "cudnn"), case("350m", 32768, 1, "bf16", "full", "cudnn"),
    case("350m", 2048, 16, "amp", compiled=True),
    case("760m", 1024, 16), case("760m", 1024, 32, "amp", "full"), case("760m", 2048, 8, "amp"),
    case("760m", 2048, 16, "bf16", "none", "cudnn"), case("760m", 4096, 8, "bf16", "full"), case("760m", 8192, 2, "amp"),
    case("760m", 8192, 4, "bf16", "selective"), case("760m", 32768, 1, "bf16", "full", "cudnn"),
    case("1b", 512, 32), case("1b", 1024, 16, "amp"), case("1b", 2048, 8), case("1b", 2048, 16, "bf16", "full"),
    case("1b", 2048, 8, "amp", "full"), case("1b", 4096, 4, "bf16", "none", "cudnn"), case("1b", 4096, 8, "amp", "full"),
    case("1b", 8192, 2, "bf16", "selective"), case("1b", 16384, 1, "bf16", "full", "cudnn"),
    case("1b", 2048, 8, "bf16", compiled=True), case("1b", 32768, 2, "bf16", "none"),
    case("1b-wide-vocabulary", 2048, 8), case("1b-wide-vocabulary", 2048, 8, loss="chunked"),
    case("1b-wide-vocabulary", 8192, 2, "amp", "full"), case("1b-wide-vocabulary", 4096, 8, "bf16", "full", loss="chunked"),
    case("3b", 1024, 8), case("3b", 2048, 4, "amp", "full"), case("3b", 2048, 4, "bf16", "none", "cudnn"),
    case("3b", 4096, 4, "bf16", "full", loss="chunked"), case("3b", 8192, 1, "bf16", "selective"),
    case("3b", 8192, 4, "amp", "none"), case("3b", 16384, 1, "bf16", "full", "cudnn", "chunked"),
    case("8b", 512, 8), case("8b", 2048, 2, "bf16", "full"), case("8b", 4096, 1, "bf16", "none", "cudnn", "chunked"),
    case("8b", 4096, 2, "bf16", "full", "cudnn"), case("8b", 8192, 1, "bf16", "full", loss="chunked"),
    case("8b", 2048, 1, "amp", "full"),
    case("1b", 2048, 4, "bf16", library="transformers"), case("1b", 4096, 4, "bf16", "full", library="transformers"),
    case("125m", 1024, 16, "amp", library="transformers"), case("3b", 2048, 2, "bf16", "full", library="transformers"),
]
# ddp: whole copies. fsdp3 gathers weights before each layer's forward and backward; fsdp2 keeps them in between.
SEVERAL = [
    case("125m", 1024, 32, "amp", parallel="ddp"), case("125m", 1024, 32, "bf16", parallel="fsdp3"),
    case("350m", 2048, 8, "amp", parallel="ddp"), case("350m", 2048, 8, "amp", parallel="fsdp3"),
    case("760m", 2048, 8, "bf16", parallel="ddp"), case("760m", 2048, 8, "amp", "full", parallel="fsdp2"),
    case("1b", 2048, 8, "amp", parallel="ddp"), case("1b", 2048, 8, "amp", parallel="fsdp2"),
    case("1b", 2048, 8, "amp", parallel="fsdp3"), case("1b", 4096, 4, "bf16", "full", "cudnn", parallel="fsdp3"),
    case("1b", 1024, 2, "amp", parallel="fsdp3"), case("1b-wide-vocabulary", 4096, 4, "amp", "full", parallel="fsdp3"),
    case("3b", 2048, 2, "amp", "full", parallel="ddp"), case("3b", 2048, 4, "amp", "full", parallel="fsdp3"),
    case("3b", 4096, 2, "bf16", "none", "cudnn", "chunked", parallel="fsdp2"), case("3b", 8192, 1, "amp", "full", parallel="fsdp3"),
    case("8b", 2048, 1, "amp", "full", parallel="fsdp3"), case("8b", 4096, 2, "amp", "full", "cudnn", "chunked", parallel="fsdp3"),
    case("8b", 8192, 1, "amp", "full", "cudnn", "chunked", parallel="fsdp3"), case("8b", 4096, 1, "bf16", "none", parallel="fsdp2"),
    case("8b", 2048, 4, "bf16", "full", parallel="fsdp3"),
    case("8b", 8192, 2, "amp", "none", parallel="fsdp3"),  # the last one: a rank without memory ends the run
]

# Executed on 2026-11-30, of models that no layout above has, and read once, when the planner of that day was done.
FRESH_ONE = [
    case("200m", 512, 64), case("200m", 1024, 32, "amp"), case("200m", 2048, 16, "bf16", "full"),
    case("200m", 4096, 8, "amp", "none", "cudnn"), case("200m", 16384, 2, "amp", "full"), case("200m", 8192, 4),
    case("200m", 1024, 32, compiled=True), case("200m", 1024, 8, attention="naive"),
    case("200m", 1024, 16, "amp", library="transformers"), case("200m", 1024, 8, attention="naive", library="transformers"),
    case("500m", 1024, 16), case("500m", 2048, 8, "amp"), case("500m", 4096, 4, "amp", "full"),
    case("500m", 32768, 1, "bf16", "full", "cudnn", "chunked"), case("500m", 2048, 8, loss="chunked"),
    case("500m", 2048, 8, library="transformers"),
    case("1.5b", 1024, 8), case("1.5b", 2048, 8, "amp", "full"), case("1.5b", 8192, 2, "bf16", "full", "cudnn"),
    case("1.5b", 4096, 2, "amp", "none", "flash2", "chunked"), case("1.5b", 2048, 4, compiled=True),
    case("1.5b", 1024, 2, "amp", attention="naive"), case("1.5b", 16384, 2, "amp", "full", loss="chunked"),
    case("1.5b", 2048, 4, "amp", "full", library="transformers"),
    case("1.7b", 512, 16, "amp"), case("1.7b", 2048, 8), case("1.7b", 4096, 4, "bf16", "full"),
    case("1.7b", 32768, 1, "amp", "full", "cudnn", "chunked"), case("1.7b", 8192, 1, "bf16", "none", "cudnn"),
    case("1.7b", 2048, 4, "amp", compiled=True),
    case("2.7b", 1024, 8), case("2.7b", 2048, 8, "bf16", "full"), case("2.7b", 4096, 2, "amp"),
    case("2.7b", 2048, 4, "amp", "full", "cudnn"), case("2.7b", 16384, 1, "bf16", "full"),
    case("2.7b", 1024, 2, "bf16", attention="naive"), case("2.7b", 2048, 2, library="transformers"),
    case("7b", 512, 8, "bf16", "full"), case("7b", 2048, 4, "bf16", "full"), case("7b", 2048, 2),
    case("7b", 4096, 1, "bf16", "none", "cudnn"), case("7b", 8192, 2, "bf16", "full", "cudnn"),
    case("7b", 2048, 2, "amp", "full"), case("7b", 32768, 1, "bf16", "full", "cudnn", "chunked"),
    case("7b", 4096, 4, "amp"), case("7b", 1024, 2, "bf16", "full", library="transformers"),
]
FRESH_TWO = [
    case("200m", 1024, 32, "amp", parallel="ddp"), case("200m", 2048, 16, parallel="fsdp3"),
    case("500m", 2048, 8, parallel="ddp"), case("500m", 1024, 8, "amp", parallel="fsdp2"),
    case("1.5b", 2048, 4, "amp", parallel="ddp"), case("1.5b", 4096, 4, "amp", "full", parallel="fsdp3"),
    case("1.7b", 2048, 4, "amp", parallel="fsdp3"), case("1.7b", 4096, 2, "bf16", "none", "cudnn", parallel="fsdp2"),
    case("2.7b", 2048, 4, "amp", "full", parallel="fsdp3"), case("2.7b", 2048, 4, "bf16", parallel="ddp"),
    case("7b", 2048, 2, "amp", "full", parallel="fsdp3"), case("7b", 4096, 2, "bf16", "full", "cudnn", parallel="fsdp2"),
    case("7b", 8192, 1, "amp", "full", "cudnn", "chunked", parallel="fsdp3"),
]
# Executed once more on 2026-11-30, after what the fresh ones showed was mended: eager attention, hosts that wait.
LAST_ONE = [
    case("300m", 512, 48), case("300m", 1024, 16, "amp"), case("300m", 2048, 16, "bf16", "full"), case("300m", 4096, 4, "amp"),
    case("300m", 16384, 1, "bf16", "none", "cudnn"), case("300m", 2048, 8, compiled=True),
    case("300m", 1024, 8, attention="naive"), case("300m", 512, 8, "amp", attention="naive", library="transformers"),
    case("300m", 2048, 4, "amp", library="transformers"), case("300m", 1024, 4, attention="naive", library="transformers"),
    case("900m", 1024, 12), case("900m", 2048, 8, "amp"), case("900m", 4096, 4, "bf16", "full", "cudnn"),
    case("900m", 8192, 2, "amp", "full"), case("900m", 32768, 1, "bf16", "full", "cudnn", "chunked"),
    case("900m", 1024, 4, "amp", attention="naive"), case("900m", 2048, 4, library="transformers"),
    case("1.2b", 1024, 8, "amp"), case("1.2b", 2048, 6), case("1.2b", 4096, 4, "amp", "full"),
    case("1.2b", 8192, 1, "bf16", "none", "cudnn"), case("1.2b", 2048, 4, loss="chunked"), case("1.2b", 1024, 8, compiled=True),
    case("2b", 512, 16), case("2b", 2048, 6, "bf16", "full"), case("2b", 4096, 2, "amp", "none", "cudnn"),
    case("2b", 1024, 8, "amp", "full", library="transformers"), case("2b", 16384, 1, "bf16", "full"),
    case("4b", 1024, 6), case("4b", 2048, 2, "amp", "full"), case("4b", 4096, 2, "bf16", "full", "cudnn"),
    case("4b", 2048, 2, library="transformers"), case("4b", 8192, 1, "bf16", "none", "flash2", "chunked"),
    case("6b", 1024, 4), case("6b", 2048, 4, "bf16", "full"), case("6b", 4096, 2, "amp", "full"),
    case("6b", 16384, 1, "bf16", "full", "cudnn", "chunked"), case("6b", 2048, 8, "amp"),
]
LAST_TWO = [
    case("300m", 1024, 8, "amp", parallel="fsdp3"), case("300m", 2048, 8, parallel="ddp"),
    case("900m", 1024, 8, "amp", parallel="fsdp2"), case("900m", 2048, 4, "amp", parallel="ddp"),
    case("1.2b", 512, 4, "amp", parallel="fsdp3"), case("1.2b", 4096, 2, "bf16", "none", "cudnn", parallel="fsdp3"),
    case("2b", 2048, 4, "amp", "full", parallel="fsdp2"), case("2b", 2048, 4, "bf16", parallel="ddp"),
    case("4b", 2048, 2, "amp", "full", parallel="fsdp3"), case("6b", 4096, 1, "amp", "full", "cudnn", "chunked", parallel="fsdp3"),
    case("6b", 2048, 2, "bf16", "full", parallel="fsdp3"),
]
SETS = {"first": (ONE, SEVERAL), "fresh": (FRESH_ONE, FRESH_TWO), "last": (LAST_ONE, LAST_TWO)}
