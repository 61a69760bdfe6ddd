"""tegula plan FILE: any published config.json gives parameters, FLOPs and memory, or is refused by the
key that is not counted."""

import json
import unittest

import published_models
from case import CliTest, INPUT

CACHE = {"deepseek_v3": 61 * (512 + 64) * 2}  # bytes a token, in bf16


class PublishedModels(CliTest):
    def plan(self, config, *arguments):
        return self.run_tool("plan", self.write("config.json", json.dumps(config)), "--json", *arguments)

    def test_parameters_are_those_of_transformers(self):
        for model_type, said, params in published_models.CASES:
            with self.subTest(model_type=model_type, said=said):
                plan = json.loads(self.expect_ok(self.plan({"model_type": model_type, **said})).stdout)
                self.assertEqual(plan["params"], params)
                self.assertLessEqual(plan["params_active"], params)
                self.assertGreater(plan["flops_per_token_forward"], plan["params_active"] / 2)
                self.assertNotIn("notes", plan)
                if not said and model_type in CACHE:
                    self.assertEqual(plan["kv_bytes_per_token"], CACHE[model_type])

    def test_flops_of_latent_attention_and_experts(self):
        """DeepSeek-V3 at 4,096 tokens, by hand."""
        plan = json.loads(self.expect_ok(self.plan({"model_type": "deepseek_v3"})).stdout)
        h, heads, layers = 7168, 128, 61
        attention = (h * 1536 + 1536 * heads * 192 + h * 576 + 512 * heads * (128 + 128)
                     + heads * 128 * h)
        sparse = 3 * h * 2048 * (8 + 1) + h * 256
        flops = 2 * (layers * attention + 58 * sparse + 3 * 3 * h * 18432 + h * 129280
                     + layers * 4096 * heads * (192 + 128))
        self.assertEqual(plan["flops_per_token_forward"], flops)

    def test_memory_of_a_cluster(self):
        """The layouts' weights over all ranks are the parameters, in bf16."""
        for model_type, gpus in (("qwen3_moe", "64xH100"), ("gpt_oss", "256xH100"),
                                 ("deepseek_v3", "2048xH100"), ("gemma3_text", "8xH100")):
            with self.subTest(model_type=model_type):
                plan = json.loads(self.expect_ok(self.plan(
                    {"model_type": model_type}, "--gpus", gpus, "--fix", "pp=1,zero=3")).stdout)
                best = plan["layouts"][0]
                n = int(gpus.split("x")[0])
                self.assertGreater(best["memory"]["weights"] * n, 1.99 * plan["params"])
                self.assertLess(best["memory"]["weights"] * n, 2.2 * plan["params"])
                self.assertGreater(best["mfu"], 0.02)

    def test_windows(self):
        """Layers with a window attend to less: by hand, Gemma 3's at 32,768 tokens."""
        plan = json.loads(self.expect_ok(self.plan({"model_type": "gemma3_text"}, "--seqlen",
                                                   32768)).stdout)
        keys = 4 * 32768 + 22 * 4096  # every sixth of 26 layers sees all
        h, ff = 2304, 9216
        weights = 26 * (h * (2048 + 2 * 1024) + 2048 * h + 3 * h * ff) + h * 262208
        self.assertEqual(plan["flops_per_token_forward"], 2 * weights + 4 * keys * 2048)

    def test_the_text_of_a_model_of_images(self):
        text = {"model_type": "llama", "vocab_size": 32064}
        plan = json.loads(self.expect_ok(self.plan(
            {"model_type": "llava", "text_config": text, "tie_word_embeddings": False,
             "vision_config": {"hidden_size": 1024}})).stdout)
        self.assertEqual(plan["params"], 6738415616 + 64 * 2 * 4096)
        self.assertEqual(len(plan["notes"]), 1)
        for word in ("llava", "text_config", "not vision_config"):
            self.assertIn(word, plan["notes"][0])
        gemma = json.loads(self.expect_ok(self.plan(
            {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}})).stdout)
        self.assertEqual(gemma["params"], 2628658432)

    def test_what_is_not_counted(self):
        for config, words in (
                ({"model_type": "mamba", "hidden_size": 8}, ("'mamba'", "gemma3_text", "qwen3_moe")),
                ({"model_type": "granite", "mlp_bias": True}, ('"mlp_bias"', "true")),
                ({"model_type": "opt", "word_embed_proj_dim": 512}, ('"word_embed_proj_dim"', "512")),
                ({"model_type": "qwen3", "hidden_size": "x"}, ('"hidden_size"', "not a size")),
                ({"model_type": "deepseek_v2"}, ('"num_experts_per_tok"', "missing")),
                ({"model_type": "gemma3_text", "layer_types": ["full_attention"]},
                 ('"layer_types"', "26 layers")),
                ({"hidden_size": 8}, ('no "model_type"',))):
            self.expect_error(self.plan(config), INPUT, "config.json", *words)
        plan = json.loads(self.expect_ok(self.plan({"model_type": "qwen3", "my_key": 1})).stdout)
        self.assertEqual(plan["notes"], ["keys that are not read: my_key"])
        self.expect_error(self.plan({"model_type": "deepseek_v3"}, "--gpus", "64xH200", "--serve"),
                          INPUT, "kv_lora_rank 512")


if __name__ == "__main__":
    unittest.main()
