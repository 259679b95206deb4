#!/usr/bin/env python3
"""A model of Kimi K3's real sizes with a few layers, for measuring only.

    make_k3.py DIRECTORY [--layers 4] [--experts 896]

Writes config.json and a model.safetensors whose matrices are holes: the file is
as long as the real thing and takes next to no space. Norms, biases and gates
are written, with random values. `plum-run bench DIRECTORY --target cuda
--random-weights` then fills the matrices on the GPU. The first four layers are
one macrocycle: three of KDA and one of MLA, all with experts.
"""

import argparse
import array
import json
import os
import random


def config(layers, experts):
    kda = [l + 1 for l in range(layers) if l % 4 != 3]
    return {
        "architectures": ["KimiK3ForConditionalGeneration"],
        "model_type": "kimi_k3",
        "text_config": {
            "model_type": "kimi_linear",
            "vocab_size": 163840,
            "hidden_size": 7168,
            "num_hidden_layers": layers,
            "num_attention_heads": 96,
            "num_key_value_heads": 96,
            "intermediate_size": 33792,
            "hidden_act": "situ",
            "activation_situ_beta": 4.0,
            "activation_situ_linear_beta": 25.0,
            "rms_norm_eps": 1e-5,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "mla_use_nope": True,
            "mla_use_output_gate": True,
            "num_experts": experts,
            "num_experts_per_token": 16,
            "num_shared_experts": 2,
            "moe_intermediate_size": 3072,
            "routed_expert_hidden_size": 3584,
            "latent_moe_use_norm": True,
            "moe_renormalize": True,
            "moe_router_activation_func": "sigmoid",
            "routed_scaling_factor": 1.0,
            "first_k_dense_replace": 0,
            "moe_layer_freq": 1,
            "num_expert_group": 1,
            "attn_res_block_size": 12,
            "tie_word_embeddings": False,
            "max_position_embeddings": 1048576,
            "linear_attn_config": {
                "num_heads": 96,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
                "gate_lower_bound": -5.0,
                "use_full_rank_gate": True,
                "kda_layers": kda,
                "full_attn_layers": [
                    l + 1 for l in range(layers) if l % 4 == 3
                ],
            },
        },
    }


class Weights:
    """Names, shapes and places; values only where somebody wants them."""

    def __init__(self):
        self.header, self.values, self.end = {}, [], 0
        self.random = random.Random(1)

    def add(self, name, dtype, shape):
        size = {"BF16": 2, "F32": 4, "U8": 1}[dtype]
        for extent in shape:
            size *= extent
        self.header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [self.end, self.end + size],
        }
        self.end += size

    def matrix(self, name, rows, cols):
        self.add(name, "BF16", [rows, cols])

    def packed(self, name, rows, cols):
        self.add(name + "_packed", "U8", [rows, cols // 2])
        self.add(name + "_scale", "U8", [rows, cols // 32])

    def vector(self, name, size, center, spread, shape=None):
        begin = self.end
        self.add(name, "F32", shape or [size])
        draw = self.random.gauss
        self.values.append(
            (begin, array.array("f", (draw(center, spread) for _ in range(size))))
        )

    def write(self, path):
        text = json.dumps(self.header).encode()
        text += b" " * (-len(text) % 8)
        start = 8 + len(text)
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for begin, values in self.values:
                file.seek(start + begin)
                file.write(values.tobytes())
            file.truncate(start + self.end)


def add_kda(w, name):
    hidden, inner = 7168, 96 * 128
    for part in ("q", "k", "v"):
        w.matrix(f"{name}{part}_proj.weight", inner, hidden)
        w.vector(f"{name}{part}_conv1d.weight", inner * 4, 0, 0.5, [inner, 1, 4])
    w.matrix(name + "f_a_proj.weight", 128, hidden)
    w.matrix(name + "f_b_proj.weight", inner, 128)
    w.matrix(name + "b_proj.weight", 96, hidden)
    w.matrix(name + "g_proj.weight", inner, hidden)
    w.vector(name + "A_log", 96, 0, 0.5)
    w.vector(name + "dt_bias", inner, -2, 1)
    w.vector(name + "o_norm.weight", 128, 1, 0.1)
    w.matrix(name + "o_proj.weight", hidden, inner)


def add_mla(w, name):
    hidden, heads = 7168, 96
    w.matrix(name + "q_a_proj.weight", 1536, hidden)
    w.vector(name + "q_a_layernorm.weight", 1536, 1, 0.1)
    w.matrix(name + "q_b_proj.weight", heads * 192, 1536)
    w.matrix(name + "kv_a_proj_with_mqa.weight", 576, hidden)
    w.vector(name + "kv_a_layernorm.weight", 512, 1, 0.1)
    w.matrix(name + "kv_b_proj.weight", heads * 256, 512)
    w.matrix(name + "g_proj.weight", heads * 128, hidden)
    w.matrix(name + "o_proj.weight", hidden, heads * 128)


def add_experts(w, name, experts):
    hidden, latent, inner = 7168, 3584, 3072
    w.matrix(name + "gate.weight", experts, hidden)
    w.vector(name + "gate.e_score_correction_bias", experts, 0, 0.01)
    for e in range(experts):
        w.packed(f"{name}experts.{e}.w1.weight", inner, latent)
        w.packed(f"{name}experts.{e}.w3.weight", inner, latent)
        w.packed(f"{name}experts.{e}.w2.weight", latent, inner)
    w.matrix(name + "shared_experts.gate_proj.weight", 2 * inner, hidden)
    w.matrix(name + "shared_experts.up_proj.weight", 2 * inner, hidden)
    w.matrix(name + "shared_experts.down_proj.weight", hidden, 2 * inner)
    w.matrix(name + "routed_expert_down_proj.weight", latent, hidden)
    w.vector(name + "routed_expert_norm.weight", latent, 1, 0.1)
    w.matrix(name + "routed_expert_up_proj.weight", hidden, latent)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--experts", type=int, default=896)
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    settings = config(options.layers, options.experts)
    w = Weights()
    root = "language_model.model."
    w.matrix(root + "embed_tokens.weight", 163840, 7168)
    for l in range(options.layers):
        name = f"{root}layers.{l}."
        w.vector(name + "input_layernorm.weight", 7168, 1, 0.1)
        w.vector(name + "post_attention_layernorm.weight", 7168, 1, 0.1)
        for mixer in ("self_attention_res", "mlp_res"):
            w.vector(f"{name}{mixer}_norm.weight", 7168, 1, 0.1)
            w.vector(f"{name}{mixer}_proj.weight", 7168, 0, 0.01, [1, 7168])
        recurrent = l + 1 in settings["text_config"]["linear_attn_config"]["kda_layers"]
        (add_kda if recurrent else add_mla)(w, name + "self_attn.")
        add_experts(w, name + "block_sparse_moe.", options.experts)
    w.vector(root + "output_attn_res_norm.weight", 7168, 1, 0.1)
    w.vector(root + "output_attn_res_proj.weight", 7168, 0, 0.01, [1, 7168])
    w.vector(root + "norm.weight", 7168, 1, 0.1)
    w.matrix("language_model.lm_head.weight", 163840, 7168)
    w.write(os.path.join(options.directory, "model.safetensors"))
    with open(os.path.join(options.directory, "config.json"), "w") as file:
        json.dump(settings, file, indent=1)
    print(f"{options.directory}: {w.end / 1e9:.1f} GB of weights, as holes")


if __name__ == "__main__":
    main()
