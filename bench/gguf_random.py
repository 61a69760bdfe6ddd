#!/usr/bin/env python3
"""A GGUF file of a Llama of about a billion weights in Q4_K, at random, with another file's tokenizer.

    bench/gguf_random.py --like FILE.gguf --out OUT.gguf

For timing alone: the shape is that of Llama 3.2 1B, but for the vocabulary. Needs PyPI's gguf and numpy.
"""
import argparse

import gguf
import numpy as np

WIDTH, LAYERS, HIDDEN, HEADS, KV_HEADS = 2048, 16, 8192, 32, 8


def blocks(rng, rows, columns):
    """Rows of Q4_K: halves d and dmin, 12 bytes of scales, 128 of values."""
    data = rng.integers(0, 256, (rows, columns // 256, 144), dtype=np.uint8)
    data[:, :, :4] = np.array([2e-4, 1.5e-3], np.float16).view(np.uint8)
    return data.reshape(rows, -1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--like", required=True)
    parser.add_argument("--out", required=True)
    a = parser.parse_args()
    reader = gguf.GGUFReader(a.like)
    writer = gguf.GGUFWriter(a.out, "llama")
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            is_list = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(key, field.contents(), field.types[0], field.types[1] if is_list else None)
    writer.add_context_length(16384)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(500000.0)
    writer.add_vocab_size(tokens)
    rng = np.random.default_rng(1)

    def product(name, rows, columns):
        writer.add_tensor(name, blocks(rng, rows, columns), raw_dtype=gguf.GGMLQuantizationType.Q4_K)

    def norm(name):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))
    product("token_embd.weight", tokens, WIDTH)
    norm("output_norm.weight")
    kv = KV_HEADS * WIDTH // HEADS
    for i in range(LAYERS):
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
        for name, rows, columns in [("attn_q", WIDTH, WIDTH), ("attn_k", kv, WIDTH), ("attn_v", kv, WIDTH),
                                    ("attn_output", WIDTH, WIDTH), ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH),
                                    ("ffn_down", WIDTH, HIDDEN)]:
            product(f"blk.{i}.{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
