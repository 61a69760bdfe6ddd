"""Every key of every family's config.json, and what it is changed to; for tests with and without
transformers. The keys with their defaults are transformers' (config_keys.json), those that older
versions wrote are below.

    python3 tests/cli/config_changes.py --write     with transformers: brings config_keys.json up to date
"""

import copy
import json
import pathlib
import sys

FILE = pathlib.Path(__file__).with_name("config_keys.json")
FAMILIES = {"gpt2": "gpt2", "llama": "llama", "qwen2": "qwen2", "mistral": "mistral",
            "gemma2": "gemma2", "moe": "mixtral", "qwen3": "qwen3", "gemma3": "gemma3_text",
            "smollm3": "smollm3", "phi3": "phi3", "olmo2": "olmo2", "starcoder2": "starcoder2",
            "gpt_neox": "gpt_neox", "qwen2_moe": "qwen2_moe", "qwen3_moe": "qwen3_moe",
            "bert": "bert"}  # ours: transformers' model_type

# A model in which every key of mathematics counts: windows shorter than the rows, caps that bend.
SMALL = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "max_position_embeddings": 32, "tie_word_embeddings": False}
TIED = {**SMALL, "tie_word_embeddings": True}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5, 2.0, 3.0],
        "long_factor": [1.0, 2.5, 4.0, 9.5]}
BASES = {
    "gpt2": {"vocab_size": 40, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4,
             "n_inner": 48},
    "llama": SMALL, "mistral": {**SMALL, "sliding_window": 6},
    "qwen2": {**SMALL, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1,
              "layer_types": None},
    "gemma2": {**SMALL, "tie_word_embeddings": True, "sliding_window": 6, "layer_types": None,
               "query_pre_attn_scalar": 11, "attn_logit_softcapping": 2.0,
               "final_logit_softcapping": 3.0},
    "mixtral": {**SMALL, "num_local_experts": 4},
    "qwen3": {**SMALL, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1,
              "layer_types": None},
    "gemma3_text": {**TIED, "sliding_window": 6, "sliding_window_pattern": 2, "layer_types": None,
                    "query_pre_attn_scalar": 11, "final_logit_softcapping": 3.0},
    "smollm3": {**TIED, "pad_token_id": 0, "use_sliding_window": True, "sliding_window": 6,
                "no_rope_layer_interval": 2, "no_rope_layers": None, "layer_types": None},
    "phi3": {**SMALL, "pad_token_id": 0, "sliding_window": 6, "original_max_position_embeddings": 8,
             "rope_parameters": {**LONG, "partial_rotary_factor": 1.0}},
    "olmo2": SMALL,
    "qwen3_moe": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                  "use_sliding_window": True, "sliding_window": 6},
    "qwen2_moe": {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                  "shared_expert_intermediate_size": 48, "use_sliding_window": True,
                  "sliding_window": 6, "layer_types": None},
    "starcoder2": {**TIED, "sliding_window": 6},
    "bert": {key: value for key, value in TIED.items() if key not in ("num_key_value_heads", "head_dim")},
    "gpt_neox": {**{key: value for key, value in SMALL.items()
                    if key not in ("num_key_value_heads", "head_dim")},
                 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                     "partial_rotary_factor": 0.5}},
}

# What else a key may be changed to. Keys that the default file has not are those of older versions,
# of files of other models, and members of objects.
ROPE_SCALED = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
CHANGES = {
    "hidden_act": ["gelu", "relu", "gelu_pytorch_tanh"],
    "hidden_activation": ["gelu", "silu"],
    "activation_function": ["gelu", "relu", "silu"],
    "layer_types": [["full_attention"] * 2, ["sliding_attention"] * 2,
                    ["full_attention", "sliding_attention"]],
    "no_rope_layers": [[1, 1], [0, 0], [0]], "no_rope_layer_interval": [1, 3],
    "original_max_position_embeddings": [9, 16, None],
    "sliding_window": [2, 40, None], "max_window_layers": [0, 2], "head_dim": [10, None],
    "num_key_value_heads": [1, 4, None], "num_attention_heads": [2, 8], "n_head": [2, 8],
    "max_position_embeddings": [4, 64], "n_positions": [4, 64], "n_inner": [None, 40],
    "num_hidden_layers": [1, 3], "n_layer": [1, 3], "num_local_experts": [3, 5],
    "num_experts_per_tok": [1, 3], "num_experts": [3], "mlp_only_layers": [[0]],
    "decoder_sparse_step": [2],
    "model_type": ["t5"], "dtype": ["bfloat16"], "torch_dtype": ["bfloat16"],
    "attn_logit_softcapping": [None, 20.0], "final_logit_softcapping": [None, 20.0],
    "id2label": [{"0": "a", "1": "b", "2": "c"}], "label2id": [{"a": 0, "b": 1, "c": 2}],
    "problem_type": ["regression"], "architectures": [["GPT2Model"]],
    "use_bidirectional_attention": [True], "layer_norm_eps": [0.05], "type_vocab_size": [1, 3],
}
ROPE_CHANGES = {
    "rope_parameters": [ROPE_SCALED, {"type": "linear", "factor": 4.0, "rope_theta": 10000.0},
                        {"rope_theta": 500000.0},
                        {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
                        {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0},
                        {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0, "mscale": 0.7,
                         "mscale_all_dim": 1.3, "beta_fast": 2.0, "beta_slow": 0.5,
                         "original_max_position_embeddings": 8, "truncate": False},
                        {**LONG, "original_max_position_embeddings": 8, "factor": 3.0},
                        {**LONG, "original_max_position_embeddings": 16, "attention_factor": 1.5},
                        {"rope_type": "llama3", "factor": 8.0, "rope_theta": 10000.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 16},
                        {"full_attention": {"rope_theta": 500000.0, "rope_type": "default"},
                         "sliding_attention": ROPE_SCALED}],
    "rope_parameters.rope_theta": [500000.0], "rope_parameters.rope_type": ["linear", "proportional"],
    "rope_parameters.partial_rotary_factor": [0.75], "rope_parameters.factor": [5.0],
    "rope_parameters.full_attention": [{"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                                       {"rope_theta": 500.0}],
    "rope_parameters.full_attention.truncate": [False],
    "rope_parameters.sliding_attention": [{"rope_type": "default", "rope_theta": 500.0},
                                          {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}],
    "rope_parameters.type": ["linear"], "rope_parameters.attention_factor": [2.0],
    "rope_theta": [500000.0], "partial_rotary_factor": [0.5],
    "rope_scaling": [ROPE_SCALED, {"type": "linear", "factor": 4.0},
                     {"rope_type": "default", "rope_theta": 500000.0}],
}
LEGACY_CHANGES = {
    "is_causal": [False], "quantization_config": [{"quant_method": "gptq", "bits": 4}],
    "pruned_heads": [{"0": [1]}], "tie_encoder_decoder": [True], "pretraining_tp": [2],
    "n_ctx": [64], "alibi": [True], "logit_scale": [0.5], "qk_layernorm": [True],
    "text_config": [{"hidden_size": 16}], "num_nextn_predict_layers": [1],
    "sliding_window_pattern": [1, 3], "rope_local_base_freq": [500.0], "rotary_pct": [0.75],
    "rotary_emb_base": [500.0], "position_embedding_type": ["relative_key", "relative_key_query"], "use_parallel_residual": [True],
    "original_max_position_embeddings": [16], "clip_qkv": [1.0], "residual_multiplier": [0.2], "attention_sink_size": [4],
    "_attn_implementation": ["sdpa"], "use_flash_attn": [True], "temperature": [0.5],
    "torch_dtype": ["bfloat16"], "_name_or_path": ["x"], "num_labels": [3],
    # Other names of one key, as transformers' attribute maps have them.
    "hidden_size": [16], "num_experts": [3],
}


def plain(key, value):
    """A value of the same type that is another."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value]
    if isinstance(value, float):
        return [2 * value + 0.5]
    if isinstance(value, str):
        return [value + "x"]
    if value is None:
        return [3, True]
    return [["x"] if isinstance(value, list) else {**value, "x": 1}]


def base(model_type):
    """A whole config.json of the family."""
    return {**json.loads(FILE.read_text())[model_type], **BASES[model_type]}


def with_key(config, key, value):
    config = copy.deepcopy(config)
    *above, last = key.split(".")
    at = config
    for name in above:
        at = at.setdefault(name, {})
    at[last] = value
    return config


def changes(model_type):
    """(key, the changed configuration): every key of the file, and those that others may have."""
    config = base(model_type)
    wanted = {key: CHANGES.get(key) or plain(key, value) for key, value in config.items()
              if key != "rope_parameters"}
    for key, values in LEGACY_CHANGES.items():
        wanted.setdefault(key, values)
    wanted.update(ROPE_CHANGES)
    for key, values in wanted.items():
        for value in values:
            changed = with_key(config, key, value)
            if changed != config:
                yield key, changed


def write():
    from transformers import CONFIG_MAPPING
    keys = {}
    for model_type in FAMILIES.values():
        config = CONFIG_MAPPING[model_type]().to_dict()
        config["transformers_version"] = "5"
        for list_of_layers in ("layer_types", "no_rope_layers"):
            if list_of_layers in config:
                config[list_of_layers] = None
        keys[model_type] = dict(sorted(config.items()))
    FILE.write_text(json.dumps(keys, indent=1) + "\n")


if __name__ == "__main__" and "--write" in sys.argv:
    write()
