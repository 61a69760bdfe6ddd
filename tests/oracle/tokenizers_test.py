"""Our tokenizer files load with `tokenizers` and `transformers`, and give the ids that we give."""

import json

import pytest
from conftest import tegula
from tokenizers import Tokenizer
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


@pytest.fixture(scope="module", params=["bytes", "chars", "bpe:300", "bpe:1000"])
def directory(request, tmp_path_factory):
    at = tmp_path_factory.mktemp("tokenizer")
    text = "\n".join(AWKWARD * 4)
    (at / "text.txt").write_bytes(text.encode())
    tegula("train", "--data", at / "text.txt", "--out", at / "model", "--tokenizer", request.param,
           "--n-layers", 1, "--n-heads", 1, "--d-model", 4, "--seqlen", 8, "--batch", 1, "--steps", 1)
    return at / "model"


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
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
