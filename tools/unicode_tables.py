#!/usr/bin/env python3
"""Writes tegula/text/unicode_tables.cpp: what the Hugging Face `tokenizers` library knows of each code point.

The library itself is asked, code point by code point, because a character of which it knows another
Unicode version gives other ids: its patterns, its normal forms, its lists of marks and its numbers are of four
versions. Needs `pip install tokenizers==0.23.3`; --check compares only. Takes half a minute.

Runs are written as a symbol and a count (none: 1), mappings as UTF-8: a character, what it becomes,
and a pilcrow.
"""

import argparse
import pathlib
import sys
import unicodedata

VERSION = "0.23.3"
OUT = pathlib.Path(__file__).resolve().parent.parent / "tegula/text/unicode_tables.cpp"
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co "
              "Cn").split()
POINTS = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
HANGUL = range(0xac00, 0xd7a4)


def categories(lib):
    """The category of each code point, as patterns know it."""
    of = ["Cs"] * 0x110000
    for name in CATEGORIES:
        if name == "Cs":
            continue
        between = "!" if name != "Po" else "a"
        text = between.join(map(chr, POINTS))
        split = lib.pre_tokenizers.Split(lib.Regex(r"\p{%s}" % name), "removed", invert=True)
        for piece, _ in split.pre_tokenize_str(text):
            for c in piece:
                of[ord(c)] = name
    of[ord("!")], of[ord("a")] = "Po", "Ll"
    return of


def runs(values):
    """[3, 3, 5] -> "C2E": values are small, and each has a symbol from @ on."""
    text, at = "", 0
    while at < len(values):
        end = at
        while end < len(values) and values[end] == values[at]:
            end += 1
        text += chr(64 + values[at]) + (str(end - at) if end - at > 1 else "")
        at = end
    return text.replace("\\", "\\\\")


def literals(text, width=96):
    """A text that is cut into string literals, not within a character that is escaped."""
    lines = []
    while text:
        n = width
        while n < len(text) and text[n - 1] == "\\" and text[n - 2] != "\\":
            n -= 1
        lines.append(f'    "{text[:n]}"')
        text = text[n:]
    return "\n".join(lines)


def mapping(pairs):
    """{c: text} as lines of literals of whole entries."""
    lines, line = [], ""
    for c, to in sorted(pairs.items()):
        entry = (c + to + "¶").replace("\\", "\\\\").replace('"', '\\"')
        if len(line) + len(entry) > 90:
            lines.append(line)
            line = ""
        line += entry
    return "\n".join(f'    "{each}"' for each in [*lines, line])


def boundaries(inside):
    """The code points at which membership changes, beginning with 'no'."""
    found = [c for c in range(0x110000) if (c in inside) != (c - 1 in inside)]
    lines, line = [], "   "
    for n in found:
        word = f" {n:#x},"
        if len(line) + len(word) > 100:
            lines.append(line)
            line = "   "
        line += word
    return "\n".join(lines + [line]) + " 0x110000"


def once(c, canonical):
    """One step of a canonical decomposition, in which the first may be composite itself."""
    step = unicodedata.decomposition(c).split()
    assert step and not step[0].startswith("<"), hex(ord(c))
    text = "".join(chr(int(s, 16)) for s in step)
    return text if len(text) < 3 else canonical(c)


def tables(lib):
    n = lib.normalizers
    nfd, nfkd, nfc = (f().normalize_str for f in (n.NFD, n.NFKD, n.NFC))
    lower, strip = n.Lowercase().normalize_str, n.StripAccents().normalize_str
    bert = {key: n.BertNormalizer(**{k: k == key for k in (
        "clean_text", "handle_chinese_chars", "strip_accents", "lowercase")}).normalize_str
        for key in ("clean_text", "strip_accents")}
    alone = lib.pre_tokenizers.BertPreTokenizer()
    digits = lib.pre_tokenizers.Digits(individual_digits=True)
    category = categories(lib)
    both, one_way, compatible, small, classes = {}, {}, {}, {}, {0: 0}
    order = [0] * 0x110000
    marks, nonspacing, control, punctuation, numbers = (set() for _ in range(5))
    for cp in POINTS:
        c = chr(cp)
        if cp not in HANGUL:
            if nfd(c) != c:
                (both if nfc(c) == c else one_way)[c] = once(c, nfd)
            if nfkd(c) != nfd(c):
                compatible[c] = nfkd(c)
        ccc = unicodedata.combining(c)
        # One that the library knows goes behind a mark of class 1, or before one of class 240.
        if ccc and (nfd("a" + c + "\u0334") != nfd("a" + c) + "\u0334" if ccc > 1 else
                    nfd("a\u0345" + c) != "a\u0345" + c):
            order[cp] = classes.setdefault(ccc, len(classes))
        if cp >= 0x80 and lower(c) != c:
            small[c] = lower(c)
        is_kind = category[cp][0]
        if (strip(c) == "") != (is_kind == "M"):
            marks.add(cp)
        decomposed = nfd(c)
        if len(decomposed) == 1 and (bert["strip_accents"](c) == "") != (category[cp] == "Mn"):
            nonspacing.add(cp)
        if (bert["clean_text"](c) == "") != (category[cp] in ("Cc", "Cf", "Co")):
            control.add(cp)
        if (len(alone.pre_tokenize_str("a" + c + "b")) == 3) != (is_kind == "P"):
            punctuation.add(cp)
        if (len(digits.pre_tokenize_str("a" + c + "b")) == 3) != (is_kind == "N"):
            numbers.add(cp)
    by_number = sorted(classes, key=classes.get)
    differ = [("kMarksDiffer", "StripAccents takes for a mark not what is of category M", marks),
              ("kNonspacingDiffer", "BertNormalizer's strip_accents: not Mn", nonspacing),
              ("kControlDiffer", "BertNormalizer's clean_text removes: not Cc, Cf or Co", control),
              ("kPunctuationDiffer", "Bert's punctuation: not P", punctuation),
              ("kNumbersDiffer", "Digits takes for a number: not N", numbers)]
    lists = "\n".join(f"// {comment} from here, up to the next.\n"
                      f"const char32_t {name}[] = {{\n{boundaries(inside)}}};" for name, comment, inside in differ)
    return f"""// Generated by tools/unicode_tables.py from tokenizers {VERSION}; do not edit.
#include "tegula/text/unicode_tables.h"

namespace tegula::unicode {{

// clang-format off
const char kCategoryRuns[] =
{literals(runs([CATEGORIES.index(x) for x in category]))};
const unsigned char kCombiningClasses[] = {{{", ".join(map(str, by_number))}}};
const char kCombiningClassRuns[] =
{literals(runs(order))};
const char kCanonicalBothWays[] =
{mapping(both)};
const char kCanonicalOneWay[] =
{mapping(one_way)};
const char kCompatible[] =
{mapping(compatible)};
const char kLowercase[] =
{mapping(small)};
{lists}
// clang-format on

}}  // namespace tegula::unicode
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    try:
        import tokenizers as lib
    except ImportError:
        sys.exit("unicode_tables.py: needs tokenizers: pip install tokenizers==" + VERSION)
    if lib.__version__ != VERSION:
        sys.exit(f"unicode_tables.py: has tokenizers {lib.__version__}, needs {VERSION}")
    text = tables(lib)
    if not arguments.check:
        OUT.write_text(text, encoding="utf-8")
    elif OUT.read_text(encoding="utf-8") != text:
        sys.exit(f"{OUT} is stale: run tools/unicode_tables.py")


if __name__ == "__main__":
    main()
