"""tokenizer.model gives the ids of the sentencepiece library: BPE and Unigram, every normaliser and setting.

  script/oracle -k sentencepiece                       2,000 texts a model
  TEGULA_TEXTS=100000 script/oracle -k sentencepiece
  python3 tests/oracle/sentencepiece_test.py           writes tests/text/sentencepiece_models.json
"""

import base64
import json
import pathlib
import random

import pytest
import sentencepiece
from tokenizer_kinds import CORPUS, RULES, text, trained_pieces
from tokenizer_kinds_test import N_TEXTS, ours

SYMBOLS = ["<tool>", "two words", "Ké", "theT"]
MODELS = {
    "bpe": {"model_type": "bpe"},
    "bpe-bytes": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
                  "remove_extra_whitespaces": False},  # Llama 2's
    "bpe-plain": {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False,
                  "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                  "split_digits": True, "allow_whitespace_only_pieces": True},  # Gemma's
    "bpe-symbols": {"model_type": "bpe", "user_defined_symbols": SYMBOLS},
    "bpe-nfkc-cf": {"model_type": "bpe", "normalization_rule_name": "nfkc_cf", "split_by_whitespace": False},
    "unigram": {"model_type": "unigram"},  # T5's
    "unigram-bytes": {"model_type": "unigram", "byte_fallback": True, "normalization_rule_name": "nmt_nfkc_cf"},
    "unigram-plain": {"model_type": "unigram", "add_dummy_prefix": False, "remove_extra_whitespaces": False,
                      "normalization_rule_name": "nfkc"},
    "unigram-symbols": {"model_type": "unigram", "user_defined_symbols": SYMBOLS, "control_symbols": ["<c>"],
                        "normalization_rule_name": "identity"},
    "unigram-words": {"model_type": "unigram", "split_by_whitespace": False, "max_sentencepiece_length": 30},
}
EXTRA = [" ", "   a  b ", "\u2581a \u2581", "two words", "a two  wordsKéthe", "<tool><tool> <c> <s></s><unk>",
         "\u00ad\u00ad", "\u3000\u3000a", "", "<0x41>"]


def check(model, texts, directory):
    (directory / "tokenizer.model").write_bytes(model)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    unknown = theirs.unk_id()
    for t, (ids, back) in zip(texts, ours(directory, texts)):
        assert ids == theirs.encode(t), repr(t)
        if unknown not in ids:
            assert back == theirs.decode(ids), repr(t)


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_texts_are_equal(name, tmp_path):
    draw = random.Random(name)
    check(trained_pieces(vocab_size=600, **MODELS[name]), [text(draw) for _ in range(N_TEXTS)] + CORPUS + EXTRA, tmp_path)


def main():
    """Small ones, whose normalisers have a few rules."""
    kinds = {}
    for name, options in MODELS.items():
        options = {**options, "vocab_size": 400 if options.get("byte_fallback") else 150}
        rules = RULES if options.pop("normalization_rule_name", "") != "identity" else ""
        if not rules:
            options["normalization_rule_name"] = "identity"
        model = trained_pieces(rules=rules or None, **options)
        theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
        draw = random.Random(name)
        texts = [text(draw) for _ in range(12)] + EXTRA
        kinds[name] = [base64.b64encode(model).decode(), [[t, theirs.encode(t), theirs.decode(theirs.encode(t))]
                                                          for t in texts]]
    out = pathlib.Path(__file__).resolve().parent.parent / "text/sentencepiece_models.json"
    out.write_text("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}"
                                     for k, v in kinds.items()) + "}\n")


if __name__ == "__main__":
    main()
