"""Our tokenizer files load with `tokenizers` and `transformers`, and give the ids that we give."""

import json
import random

import pytest
from conftest import tegula
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors,
                        trainers)
from transformers import AutoTokenizer

AWKWARD = [
    "Hello, world!  Two spaces,\ttabs\t\tand\n\n\nnewlines\r\n at the end   \n",
    "don't you'll we've I'm it's they'd YOU'RE 'tis ''s",
    "1234567890 3.14159 1,000,000 x2y3 ½ ² Ⅻ ٣",
    "naïve façade Žižek Straße ŒUVRE e\u0301 n\u0303",
    "日本語のテキスト 한국어 ไทย हिन्दी العربية עברית",
    "emoji 😀 👩‍👩‍👧‍👦 🇩🇪 👍🏽 zero\u200bwidth \u00a0nbsp \u3000ideographic",
    "\u0001\u001b[0m \u007f \u0085 \u2028 \ufeff \ufffd",
    "    indented = {'key': [1, 2]}  # comment\n\tif a != b: return -1\n",
    "<|endoftext|> <unk> </s> [CLS] <0x41> ▁ Ġ Ċ",
    "a" * 300 + " " * 50 + "!?" * 40,
]


# AutoTokenizer chooses by the type of the model, too.
TYPES = ["gpt2", "llama", "qwen2", "mistral", "moe", "gemma2", "decoder", "lstm", "mlp"]


@pytest.fixture(scope="module", params=[(kind, model) for kind in ("bytes", "chars", "bpe:300", "bpe:1000")
                                        for model in TYPES], ids=" ".join)
def directory(request, tmp_path_factory):
    kind, model = request.param
    at = tmp_path_factory.mktemp("tokenizer")
    text = "\n".join(AWKWARD * 4)
    (at / "text.txt").write_bytes(text.encode())
    heads = [] if model in ("lstm", "mlp") else ["--n-heads", 1]
    tegula("train", "--data", at / "text.txt", "--out", at / "model", "--tokenizer", kind, "--model", model,
           "--n-layers", 1, *heads, "--d-model", 4, "--seqlen", 8, "--batch", 1, "--steps", 1)
    return at / "model"


def as_read(text):
    """A file's text without what Windows adds to it: docs/cli.md."""
    return text.replace("\r\n", "\n")


@pytest.mark.parametrize("text", [as_read(t) for t in AWKWARD], ids=range(len(AWKWARD)))
def test_ids_and_text_are_equal(text, directory, tmp_path):
    (tmp_path / "text.txt").write_bytes(text.encode())
    (ours,) = json.loads(tegula("encode", "--model", directory, "--text", tmp_path / "text.txt"))
    plain = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert plain.encode(text).ids == ours
    assert plain.decode(ours) == text
    loaded = AutoTokenizer.from_pretrained(directory)
    assert loaded(text).input_ids == ours
    assert loaded.decode(ours) == text
    assert len(loaded) == json.loads((directory / "config.json").read_text())["vocab_size"]


# Tokenizers as other models bring them: their patterns, names found in text, templates.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERNS = {"gpt2": None, "llama3": LLAMA3, "qwen": LLAMA3.replace("{1,3}", ""), "roberta": GPT2}
PIECES = ("a b ab the 's 'S 'll 'Re ſ 'ſ é 中 😀 12 1234 ½ ٣ . ... !? aaa x=y <mask> <|end|> <|end key "
          "< ' '' _ K").split() + [" the", " ", "  ", "\n", "\r\n", "\r", "\t", "\u00a0", "\u3000",
                                   "\u0301", "\u200b", "\u212a", "<|endoftext|>"]


def foreign(name, directory):
    """A tokenizer of the library's own making, saved where ours looks for it."""
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if PATTERNS[name]:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(AWKWARD * 4, trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>"] if name == "gpt2" else []))
    t.add_special_tokens(["<|begin|>", "<|end|>", "<|end"])
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=name == "qwen",
                             normalized=name != "roberta"), "key", "<"])
    begin, end = t.token_to_id("<|begin|>"), t.token_to_id("<|end|>")
    if name == "gpt2":
        t.post_processor = processors.ByteLevel(trim_offsets=False)
    if name == "llama3":
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin|> $A",
                                          special_tokens=[("<|begin|>", begin)])])
    if name == "roberta":
        t.post_processor = processors.RobertaProcessing(("<|end|>", end), ("<|begin|>", begin))
    t.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text("{}")
    return t


@pytest.mark.parametrize("name", PATTERNS)
def test_tokenizers_made_there_mean_the_same_here(name, tmp_path):
    theirs = foreign(name, tmp_path)
    draw = random.Random(name)
    texts = AWKWARD + ["", " ", "\n"] + ["".join(draw.choices(PIECES, k=draw.randint(1, 40)))
                                         for _ in range(100)]
    for text in texts:
        (tmp_path / "text.txt").write_bytes(text.encode())
        rows = json.loads(tegula("encode", "--model", tmp_path, "--text", tmp_path / "text.txt"))
        assert sum(rows, []) == theirs.encode(as_read(text)).ids, text
