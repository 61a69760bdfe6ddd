"""Small tokenizers of every form that published models have, made by the `tokenizers` library, and
random texts to compare on.

  python3 tests/oracle/tokenizer_kinds.py     writes tests/text/tokenizer_kinds.json, which the library's
ids of a few texts stand in: smaller ones, of which all of a form share vocabulary and merges.
"""

import io
import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

CORPUS = [
    "Hello, world!  Two spaces,\ttabs\t\tand\n\n\nnewlines\r\n at the end   \n",
    "don't you'll we've I'm it's they'd YOU'RE 'tis ''s O'Neil's the theThe HTTPServer iPhone",
    "1234567890 3.14159 1,000,000 x2y3 ½ ² Ⅻ ٣ 12 123 1234 000",
    "naïve façade Žižek Straße ŒUVRE e\u0301 n\u0303 Ελληνικά ΣΟΦΟΣ İstanbul",
    "日本語のテキスト 한국어 ไทย हिन्दी العربية עברית 中文中文 ひらがな カタカナ",
    "emoji 😀 👩\u200d👩\u200d👧\u200d👦 🇩🇪 👍🏽 zero\u200bwidth \u00a0nbsp \u3000ideographic",
    "    indented = {'key': [1, 2]}  # comment\n\tif a != b: return -1\n",
    "the theory then thence other mother. The end, the cat -- the dog; (and) [more] ~/path/to_file.txt",
]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
          r"|\s*[\r\n]|\s+(?!\S)|\s")
NANOCHAT = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
            r"|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDS}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDS}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace(ENDS, "").replace("{1,3}", "")
DEEPSEEK3 = [r"\p{N}{1,3}", r"[一-龥\u3040-ゟ゠-ヿ]+".replace("\\u3040", "\u3040"),
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
DEEPSEEK = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆა-ჺᏸ-ᏽﬀ-ﬆＡ-Ｚａ-ｚ𐐀-𐑏]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-\ud7ff]+"]
SPACE = "▁"
SIZE, ALPHABET = 700, 120


def splits(patterns, *others, behavior="isolated"):
    each = [patterns] if isinstance(patterns, str) else patterns
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), behavior) for p in each] + [
        *others, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(words, normalizer=None, lacks="", **model):
    """A byte-level BPE; the alphabet lacks some visible characters."""
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer, t.decoder = words, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    alphabet = [c for c in pre_tokenizers.ByteLevel.alphabet() if c not in lacks]
    t.train_from_iterator(CORPUS * 4, trainers.BpeTrainer(
        vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False, special_tokens=["<|endoftext|>"]))
    if lacks:  # what the text itself has is there, too, until it is taken out
        file = json.loads(t.to_str())
        keep = {k for k in file["model"]["vocab"] if not set(k) & set(lacks)}
        file["model"]["vocab"] = {k: i for i, k in enumerate(sorted(keep, key=file["model"]["vocab"].get))}
        file["model"]["merges"] = [m for m in file["model"]["merges"] if not set("".join(m)) & set(lacks)]
        t = Tokenizer.from_str(json.dumps(file))
    t.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|im"])
    t.add_tokens([AddedToken("<Tool>", lstrip=True, normalized=False), AddedToken("Ké", rstrip=True)])
    return t


def sentencepiece(normalizer, words=None, decoder=None, trained_by=None, **model):
    """Characters merged, and bytes for those that are unknown."""
    bytes_ = [f"<0x{b:02X}>" for b in range(256)] if model.get("byte_fallback", True) else []
    t = Tokenizer(models.BPE(**{"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **model}))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = trained_by or words or pre_tokenizers.Metaspace(prepend_scheme="never")
    t.train_from_iterator(CORPUS * 4, trainers.BpeTrainer(
        vocab_size=SIZE, show_progress=False, limit_alphabet=ALPHABET,
        special_tokens=["<unk>", "<s>", "</s>", *bytes_]))
    if words is None:
        file = json.loads(t.to_str())
        file["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(file))
    else:
        t.pre_tokenizer = words
    t.decoder = decoder or decoders.Sequence([
        decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(content=" ", left=1, right=0)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    t.add_special_tokens(["<|user|>"])
    t.add_tokens([AddedToken("Ké", normalized=True), AddedToken("<tool>", lstrip=True, rstrip=True)])
    return t


def wordpiece(normalizer, words=None, cleanup=True):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizer, words or pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS * 4, trainers.WordPieceTrainer(
        vocab_size=SIZE, show_progress=False, limit_alphabet=ALPHABET,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.decoder = decoders.WordPiece(cleanup=cleanup)
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


RULES = "41\t61\n65 301\tE9\n65 302 303\t1EC5\nFB01\t66 69\nD\t20\nD A\t20\nAD\t\nBD\t31 2F 32\nA0\t20\n3000\t20\n"


def message(data):
    """The fields of a protocol buffer: [(number, value or bytes)]."""
    at, fields = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        n = {1: 8, 5: 4}.get(tag & 7)
        value = varint() if tag & 7 in (0, 2) else data[at:at + n]
        if tag & 7 == 2:
            n, value = value, data[at:at + value]
        at += n or 0
        fields.append((tag >> 3, value))
    return fields


def trained_pieces(lines=CORPUS * 4, rules=None, **options):
    """A SentencePiece model's bytes."""
    import sentencepiece
    model = io.BytesIO()
    if rules is not None:
        path = pathlib.Path("/tmp/tegula-rules.tsv")
        path.write_text(rules)
        options["normalization_rule_tsv"] = str(path)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([x.replace("\0", "") for x in lines]), model_writer=model, minloglevel=9,
        **{"vocab_size": 300, "hard_vocab_limit": False, "character_coverage": .98, "num_threads": 1, **options})
    return model.getvalue()


def precompiled(rule="nmt_nfkc"):
    """SentencePiece's table of that name; in the fixture, where it would be large, one of a few rules."""
    options = {"rules": RULES} if SIZE < 500 else {"normalization_rule_name": rule}
    (spec,) = [v for k, v in message(trained_pieces(**options)) if k == 3]
    (table,) = [v for k, v in message(spec) if k == 2]
    return normalizers.Precompiled(table)


def unigram(normalizer, words, byte_fallback=False, decoder=None):
    """Pieces chosen by their scores."""
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, words
    t.train_from_iterator(CORPUS * 4, trainers.UnigramTrainer(
        vocab_size=SIZE, show_progress=False, special_tokens=special, unk_token="<unk>"))
    file = json.loads(t.to_str())
    file["model"]["byte_fallback"] = byte_fallback
    t = Tokenizer.from_str(json.dumps(file))
    t.decoder = decoder or decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    t.add_special_tokens(["<|user|>"])
    t.add_tokens([AddedToken("the", single_word=True), AddedToken("Ké", single_word=True, normalized=False),
                  AddedToken("<Tool>", lstrip=True, rstrip=True)])
    return t


def llama2():
    return normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])


B, N, P, S = pre_tokenizers.ByteLevel, normalizers, pre_tokenizers, Regex
GROUPS = {
    "byte_level": {
        "gpt2": lambda: byte_level(B(add_prefix_space=False)),
        "prefix": lambda: byte_level(B(add_prefix_space=True)),
        "gpt2-split": lambda: byte_level(splits(GPT2)),
        "llama3": lambda: byte_level(splits(LLAMA3), ignore_merges=True),
        "qwen2": lambda: byte_level(splits(LLAMA3.replace("{1,3}", "")), N.NFC()),
        "qwen3.5": lambda: byte_level(splits(LLAMA3.replace("{1,3}", "").replace(
            r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")), N.NFC()),
        "cl100k": lambda: byte_level(splits(CL100K)),
        "nanochat": lambda: byte_level(splits(NANOCHAT)),
        "o200k": lambda: byte_level(splits(O200K)),
        "tekken": lambda: byte_level(splits(TEKKEN), ignore_merges=True),
        "starcoder": lambda: byte_level(P.Sequence([P.Digits(individual_digits=True),
                                                    B(add_prefix_space=False)])),
        "smollm": lambda: byte_level(P.Sequence([P.Digits(individual_digits=True), B(add_prefix_space=False)]),
                                     lacks="ÀÁõö÷øùúûüýþÿĀāĂăĄąĆćĈĊ"),
        "lacks-unk": lambda: byte_level(B(add_prefix_space=False), lacks="ÃÂã", unk_token="<|endoftext|>"),
        "lacks-fused": lambda: byte_level(B(add_prefix_space=False), lacks="ÃÂã", unk_token="<|endoftext|>",
                                          fuse_unk=True),
        "deepseek": lambda: byte_level(splits(DEEPSEEK, P.Digits(individual_digits=True))),
        "deepseek3": lambda: byte_level(splits(DEEPSEEK3)),
        "nfkc-lower": lambda: byte_level(B(add_prefix_space=False), N.Sequence([N.NFKC(), N.Lowercase()])),
        "nfd-marks": lambda: byte_level(B(add_prefix_space=False), N.Sequence([
            N.Strip(), N.NFD(), N.StripAccents(), N.Replace(Regex(r"\s{2,}|\d"), "_")])),
        "nfkd": lambda: byte_level(splits(r"\w+".replace(r"\w", r"[\p{L}\p{N}]"), behavior="merged_with_next"),
                                   N.NFKD()),
        "contiguous": lambda: byte_level(P.Sequence([
            P.Punctuation("contiguous"), P.Split(" ", "merged_with_previous"),
            P.Split(Regex(r"\p{Lu}"), "merged_with_next"), P.Split(Regex(r"[a-f]+"), "removed", invert=True),
            B(add_prefix_space=False, use_regex=False)])),
    },
    "sentencepiece": {
        "llama2": lambda: sentencepiece(llama2()),
        "llama2-lines": lambda: sentencepiece(llama2(), trained_by=P.Split(Regex(r"\n"), "isolated")),
        "llama2-metaspace": lambda: sentencepiece(None, P.Metaspace(prepend_scheme="first", split=False)),
        "mistral": lambda: sentencepiece(None, P.Metaspace(prepend_scheme="always"),
                                         decoders.Metaspace(prepend_scheme="always")),
        "metaspace-first": lambda: sentencepiece(N.NFKC(), P.Metaspace(prepend_scheme="first"),
                                                 decoders.Metaspace(prepend_scheme="first")),
        "gemma": lambda: sentencepiece(
            N.Replace(" ", SPACE), P.Split(" ", "merged_with_previous"), decoders.Sequence([
                decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])),
        "no-bytes": lambda: sentencepiece(llama2(), byte_fallback=False),
        "no-bytes-each": lambda: sentencepiece(llama2(), byte_fallback=False, fuse_unk=False),
        "no-unknown": lambda: sentencepiece(llama2(), byte_fallback=False, unk_token=None),
        "never": lambda: sentencepiece(None, P.Metaspace(prepend_scheme="never"), decoders.Metaspace(
            prepend_scheme="never"), ignore_merges=True),
    },
    "unigram": {
        "t5": lambda: unigram(precompiled(), P.Metaspace(prepend_scheme="always")),
        "xlmr": lambda: unigram(N.Sequence([precompiled("nmt_nfkc_cf"), N.Replace(S(" {2,}"), " ")]),
                                P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="always")])),
        "albert": lambda: unigram(N.Sequence([N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase(),
                                              precompiled()]), P.Metaspace(prepend_scheme="always")),
        "unigram-first": lambda: unigram(N.Sequence([N.NFKD(), precompiled()]),
                                         P.Metaspace(prepend_scheme="first")),
        "unigram-bytes": lambda: unigram(None, P.Metaspace(prepend_scheme="first", split=False), True,
                                         decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(),
                                                            decoders.Fuse(), decoders.Strip(" ", 1, 0)])),
        "words-first": lambda: unigram(None, P.Sequence([P.WhitespaceSplit(),
                                                             P.Metaspace(prepend_scheme="first")])),
    },
    "wordpiece": {
        "bert": lambda: wordpiece(N.BertNormalizer()),
        "bert-cased": lambda: wordpiece(N.BertNormalizer(lowercase=False)),
        "bert-accents": lambda: wordpiece(N.BertNormalizer(lowercase=True, strip_accents=False), cleanup=False),
        "bert-raw": lambda: wordpiece(N.BertNormalizer(clean_text=False, handle_chinese_chars=False)),
        "words": lambda: wordpiece(N.Sequence([N.NFKC(), N.Lowercase()]), P.WhitespaceSplit()),
    },
}
KINDS = {name: make for group in GROUPS.values() for name, make in group.items()}

PIECES = ("a b ab the 's 'S 'll 'Re ſ 'ſ é 中 😀 12 1234 ½ ٣ . ... !? aaa x=y <Tool> <|im_end|> <tool> Ké "
          "< ' '' _ K The HTTP ЖЗ ǅ 가 ひ カ / - -- ' [ ] \\ ~ Σ İ ß ﬁ ① Å <|im_start|> <s> [MASK] ▁ ▁▁ <0x41> "
          "<unk> don't n't 've").split() + [
    " the", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\u00a0", "\u3000", "\u0301", "\u0327", "\u0323",
    "\u200b", "\u212a", "<|endoftext|>", "\u1100", "\u1161", "\u11a8", "\u0000", "\ufffd", "\u0085"]


def text(draw):
    """Awkward pieces, characters of one small block, or any of Unicode."""
    def anything():
        while True:
            c = draw.randrange(0x110000 if draw.random() < .3 else 0x20000 if draw.random() < .5 else 0x3100)
            if not 0xd800 <= c < 0xe000:
                return chr(c)

    kind = draw.randrange(4)
    n = draw.randint(0, 24)
    if kind == 0:
        return "".join(draw.choices(PIECES, k=n))
    if kind == 1:
        return "".join(anything() for _ in range(n))
    if kind == 2:
        return "".join(draw.choice(PIECES) if draw.random() < .5 else anything() for _ in range(n))
    line = draw.choice(CORPUS)
    at = draw.randrange(len(line))
    return line[at:at + n] + draw.choice(PIECES) + line[:at][-n:]


def fixture():
    bases, kinds = {}, {}
    for group, makers in GROUPS.items():
        for name, make in makers.items():
            file = json.loads(make().to_str())
            base = bases.setdefault(group + (" lacking" if "lacks" in name or name == "smollm" else ""), file)
            flags = {k: v for k, v in file["model"].items() if k not in ("vocab", "merges")}
            changes = {k: file[k] for k in ("normalizer", "pre_tokenizer", "decoder")}
            t = Tokenizer.from_str(json.dumps({**base, **changes, "model": {**base["model"], **flags}}))
            draw = random.Random(name)
            texts = [text(draw) for _ in range(12)]
            kinds[name] = {"base": next(k for k, v in bases.items() if v is base), **changes, "model": flags, "texts": [
                [x, t.encode(x).ids, t.decode(t.encode(x).ids, skip_special_tokens=False)] for x in texts]}
    return bases, kinds


def main():
    global SIZE, ALPHABET
    SIZE, ALPHABET = 420, 60
    bases, kinds = fixture()

    def lines(members):
        return ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in members.items())

    out = pathlib.Path(__file__).resolve().parent.parent / "text/tokenizer_kinds.json"
    out.write_text(f'{{"bases": {{\n{lines(bases)}}},\n"kinds": {{\n{lines(kinds)}}}}}\n')


if __name__ == "__main__":
    main()
