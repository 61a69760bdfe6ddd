"""Shell completion, by the shells themselves; and the table of ops as data."""

import json
import shutil
import subprocess
import unittest

from case import CliTest, TEGULA


class Bash(CliTest):
    def complete(self, line, folder=None):
        """What bash offers for the last word of the line."""
        script = (f"source <({TEGULA} completion bash); read -ra COMP_WORDS <<< \"$1\"; "
                  "[[ $1 == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
                  f"{'cd ' + str(folder) + ';' if folder else ''} "
                  "_tegula; printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", script, "bash", line], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands_flags_and_values(self):
        self.assertEqual(sorted(self.complete("tegula ")), sorted(self.commands()))
        self.assertEqual(self.complete("tegula tr"), ["train"])
        self.assertEqual(sorted(self.complete("tegula bench g")), ["gemm", "generate", "graph"])
        self.assertIn("--weight-decay", self.complete("tegula train --w"))
        self.assertNotIn("--lr", self.complete("tegula plan --l"))
        self.assertIn("--causal", self.complete("tegula bench attention --c"))
        self.assertEqual(self.complete("tegula train --model "),
                         ["bert", "decoder", "gemma2", "gemma3", "gpt2", "gpt_neox", "llama", "lstm", "mistral",
                          "mlp", "moe", "olmo2", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
                          "smollm3", "starcoder2"])
        self.assertEqual(self.complete("tegula train --data x --optimizer a"), ["adamw"])
        self.assertEqual(self.complete("tegula train --steps "), [])

    def test_files(self):
        self.write("some text.txt", "")
        self.write("data/x", "")
        words = subprocess.run([TEGULA, "completion", "bash"], capture_output=True, text=True).stdout
        self.assertIn("--data", words)
        self.assertEqual(self.complete("tegula train --data da", folder=self.dir), ["data"])

    def commands(self):
        listed = self.run_tool("--help").stdout.split("Subcommands:")[1]
        return [line.split()[0] for line in listed.splitlines()
                if line.startswith("  ") and not line.startswith("   ")]


class OtherShells(CliTest):
    def test_they_take_the_scripts(self):
        for shell, check in (("zsh", ["-n"]), ("fish", ["--no-execute"])):
            script = self.write(f"tegula.{shell}", self.run_tool("completion", shell).stdout)
            for flag in ("n-layers", "top-k"):
                self.assertIn(flag, script.read_text())
            if shutil.which(shell) is None:
                continue  # nothing to check it by; bash's is the one that is run
            done = subprocess.run([shell, *check, script], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_fish_completes(self):
        if shutil.which("fish") is None:
            self.skipTest("needs fish")
        script = self.write("tegula.fish", self.run_tool("completion", "fish").stdout)
        def complete(line):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
                                  capture_output=True, text=True)
            return [row.split("\t")[0] for row in done.stdout.splitlines()]
        self.assertIn("train", complete("tegula "))
        self.assertEqual(complete("tegula train --weight-d"), ["--weight-decay"])
        self.assertEqual(sorted(complete("tegula bench g")), ["gemm", "generate", "graph"])
        self.assertEqual(complete("tegula train --optimizer ad"), ["adamw"])
        self.assertEqual(complete("tegula plan --lr"), [])


class Ops(CliTest):
    def test_the_table_as_json(self):
        rows = json.loads(self.expect_ok(self.run_tool("ops", "--json")).stdout)
        lines = self.run_tool("ops").stdout.splitlines()
        self.assertEqual([r["name"] for r in rows], [line.split()[0] for line in lines])
        dot = next(r for r in rows if r["name"] == "dot")
        self.assertTrue(dot["has_vjp"] and dot["formula"] and dot["group"])


if __name__ == "__main__":
    unittest.main()
