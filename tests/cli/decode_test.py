"""Ids to text: the inverse of encode; what is refused."""

import json
import subprocess
import unittest

from case import CliTest, INPUT, SECONDS, TEGULA, USAGE


class Decode(CliTest):
    def setUp(self):
        super().setUp()
        self.expect_ok(self.train("--out", self.out, "--tokenizer", "bpe:300"))

    def bytes_of(self, *arguments, command="decode", **options):
        done = subprocess.run([TEGULA, command, "--model", str(self.out), *map(str, arguments)],
                              capture_output=True, timeout=SECONDS, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_what_encode_wrote_comes_back(self):
        text = "line 7 of the text;\n\tna\u00efve \U0001f600 \0 end".encode()
        for bytes_, flags in ((text, ()), (text + b"\xff\xe4\xb8", ("--bytes",))):
            ids = self.bytes_of("--text", "-", command="encode", input=bytes_)
            for length in (1, 3):  # rows end within characters
                rows = json.loads(ids)[0]
                rows = [rows[i:i + length] for i in range(0, len(rows), length)]
                file = self.write("ids.json", json.dumps(rows))
                self.assertEqual(self.bytes_of("--ids", file, *flags), bytes_)
            self.assertEqual(self.bytes_of("--ids", "-", *flags, input=ids), bytes_)
            self.assertEqual(self.bytes_of("--ids", ids.decode(), *flags), bytes_)
        ids = self.bytes_of("--text", "-", command="encode", input=b"a\xe4\xb8b")
        self.assertEqual(self.bytes_of("--ids", "-", input=ids).decode(), "a\ufffdb")

    def test_rows_are_texts_of_a_list(self):
        ids = [(json.loads(self.bytes_of("--text", "-", command="encode", input=t)) or [[]])[0]
               for t in (b"one", b"", b"\xc3")]
        told = self.bytes_of("--ids", json.dumps(ids), "--json")
        self.assertEqual(json.loads(told), ["one", "", "\ufffd"])
        self.assertEqual(self.bytes_of("--ids", "[]"), b"")

    def test_special_tokens(self):
        """Those that encode puts around a text go; the others are kept, or all go."""
        file = self.out / "latest/tokenizer.json"
        model = self.dir / "model"
        model.mkdir()
        for name in ("config.json", "model.safetensors"):
            (model / name).symlink_to(self.out / "latest" / name)
        tokenizer = json.loads(file.read_text())
        n = len(tokenizer["model"]["vocab"])
        tokenizer["added_tokens"] = [
            {"id": n + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": c != "<b>"} for i, c in enumerate(("<s>", "<b>"))]
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [n], "tokens": ["<s>"]}}}
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.out = model
        ids = self.bytes_of("--text", "-", command="encode", input=b"a<s>b<b>")
        self.assertEqual(json.loads(ids)[0][0], n)
        for special, text in (("inverse", b"a<s>b<b>"), ("keep", b"<s>a<s>b<b>"), ("skip", b"ab<b>")):
            self.assertEqual(self.bytes_of("--ids", "-", "--special", special, input=ids), text)
        self.assertEqual(self.bytes_of("--ids", "-", input=ids), b"a<s>b<b>")

    def test_what_are_no_ids_is_refused(self):
        def decode(ids):
            return self.run_tool("decode", "--model", self.out, "--ids", ids)
        n = len(json.loads((self.out / "latest/tokenizer.json").read_text())["model"]["vocab"])
        self.expect_error(decode(f"[[1, 2], [3, {n}]]"), INPUT, f"id {n}", "number 2 of row 2", f"0 to {n - 1}")
        for wrong in ("[-1]", "[1.5]", '["a"]', "[[[1]]]", "[1, [2]]", '[{"id": 1}]', "[99999999999]"):
            self.expect_error(decode(wrong), INPUT, "--ids")
        self.expect_error(decode("[1"), INPUT, "--ids")
        self.expect_error(decode(self.dir / "none.json"), INPUT, "none.json")
        self.expect_error(self.run_tool("decode", "--model", self.out, "--ids", "[1]", "--json", "--bytes"),
                          USAGE, "--bytes")


if __name__ == "__main__":
    unittest.main()
