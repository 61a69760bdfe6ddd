"""Ids and texts of every kind of tokenizer equal those of `tokenizers`, on texts over all of Unicode.

  script/oracle -k tokenizer_kinds                       2,000 texts a kind
  TEGULA_TEXTS=1000000 script/oracle -k tokenizer_kinds
"""

import os
import random
import struct
import subprocess

import pytest
from tokenizer_kinds import CORPUS, KINDS, text

N_TEXTS = int(os.environ.get("TEGULA_TEXTS", "2000"))


def ours(directory, texts):
    """(ids, what they decode to) of each text."""
    given = b"".join(struct.pack("=I", len(t.encode())) + t.encode() for t in texts)
    done = subprocess.run([os.environ["TEGULA_RUN_TOKENIZER"], str(directory)], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    out, at = done.stdout, 0
    for _ in texts:
        (n,) = struct.unpack_from("=I", out, at)
        ids = list(struct.unpack_from(f"={n}i", out, at + 4))
        at += 4 + 4 * n
        (n,) = struct.unpack_from("=I", out, at)
        yield ids, out[at + 4:at + 4 + n].decode(errors="replace")
        at += 4 + n


@pytest.mark.parametrize("name", KINDS)
def test_ids_and_texts_are_equal(name, tmp_path):
    theirs = KINDS[name]()
    theirs.save(str(tmp_path / "tokenizer.json"))
    draw = random.Random(name)
    for begin in range(0, N_TEXTS, 20_000):
        texts = [text(draw) for _ in range(min(20_000, N_TEXTS - begin))] + CORPUS
        encoded = theirs.encode_batch(texts)
        decoded = theirs.decode_batch([e.ids for e in encoded], skip_special_tokens=False)
        for t, e, d, (ids, back) in zip(texts, encoded, decoded, ours(tmp_path, texts)):
            assert ids == e.ids, repr(t)
            assert back == d, (t, ids)


def streamed(directory, rows):
    """What the detokenizer makes of each row of ids."""
    given = b"".join(struct.pack(f"=I{len(ids)}i", len(ids), *ids) for ids in rows)
    done = subprocess.run([os.environ["TEGULA_RUN_TOKENIZER"], str(directory), "ids"], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    out, at = done.stdout, 0
    for _ in rows:
        (n,) = struct.unpack_from("=I", out, at)
        yield out[at + 4:at + 4 + n].decode()
        at += 4 + n


@pytest.mark.parametrize("name", KINDS)
def test_any_ids_are_the_librarys_text(name, tmp_path):
    """Also ids that no text has: characters that are cut short, byte tokens in any order."""
    theirs = KINDS[name]()
    theirs.save(str(tmp_path / "tokenizer.json"))
    draw = random.Random(name)
    names = sorted(theirs.get_vocab().items(), key=lambda item: item[1])
    short = [id for token, id in names if len(token) == 1 or token.startswith("<0x")] or [0]
    rows = [[draw.choice(short) if draw.random() < .7 else draw.randrange(len(names)) for _ in range(draw.randrange(12))]
            for _ in range(N_TEXTS)]
    decoded = theirs.decode_batch(rows, skip_special_tokens=False)
    for ids, expected, ours in zip(rows, decoded, streamed(tmp_path, rows), strict=True):
        assert ours == expected, ids
