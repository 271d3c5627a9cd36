"""Models of the launches whose memory was measured: the sizes of public Qwen3 models, with dummy weights."""

import json
from pathlib import Path
from typing import Any

from servespec.compiler.plan import Plan
from tests.plans import compiled

Json = dict[str, Any]

QWEN3_8B: Json = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_30B: Json = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "dtype": "bfloat16", "hidden_size": 2048,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V4_FLASH: Json = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "dtype": "bfloat16", "hidden_size": 4096,
    "moe_intermediate_size": 2048, "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1,
    "head_dim": 512, "q_lora_rank": 1024, "qk_rope_head_dim": 64, "o_groups": 8, "o_lora_rank": 1024,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6, "num_hash_layers": 3, "hc_mult": 4,
    "sliding_window": 128, "index_topk": 512, "index_n_heads": 64, "index_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 1048576, "compress_ratios": [0, 0, *(4, 128) * 20, 4],
    "tie_word_embeddings": False,
}  # fmt: skip
MINIMAX_M3: Json = {
    "architectures": ["MiniMaxM3SparseForCausalLM"], "model_type": "minimax_m3_text", "dtype": "bfloat16",
    "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288, "num_hidden_layers": 60,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_local_experts": 128,
    "num_experts_per_tok": 4, "n_shared_experts": 1, "vocab_size": 200064, "max_position_embeddings": 524288,
    "moe_layer_freq": [0] * 3 + [1] * 57, "tie_word_embeddings": False,
    "sparse_attention_config": {
        "sparse_index_dim": 128, "sparse_num_index_heads": 4, "sparse_attention_freq": [0] * 3 + [1] * 57,
    },
}  # fmt: skip
QWEN3_NEXT_80B: Json = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "dtype": "bfloat16", "hidden_size": 2048,
    "intermediate_size": 5632, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "num_experts": 512,
    "num_experts_per_tok": 10, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 151936,
    "max_position_embeddings": 262144, "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False,
}  # fmt: skip
KIMI_LINEAR_48B: Json = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "dtype": "bfloat16", "hidden_size": 2304,
    "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_hidden_layers": 27, "num_attention_heads": 32,
    "num_key_value_heads": 32, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 163840, "max_position_embeddings": 1048576,
    "linear_attn_config": {
        "kda_layers": [layer for layer in range(1, 27) if layer % 4], "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
    },
    "tie_word_embeddings": False,
}  # fmt: skip
FP8: Json = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}


def eagle3_of(target: Json, **changes: Any) -> Json:
    """A one-layer EAGLE3 head with the target's sizes."""
    kept = ("dtype", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    own = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1}
    sizes = {
        "intermediate_size": target["intermediate_size"],
        "draft_vocab_size": target["vocab_size"],
        "max_position_embeddings": target["max_position_embeddings"],
    }
    return {key: target[key] for key in kept} | own | sizes | changes


def planned_model(folder: Path, target: Json, /, draft: Json | None = None, k: int = 7, **sections: Any) -> Plan:
    """The plan of a model on one H200 with dummy weights, EAGLE3 where a draft is given."""
    spec: Json = {
        "servespec": 1,
        "model": {"id": written(folder / "target", target), "load_format": "dummy", "max_model_len": 4096},
        "hardware": {"gpu": "h200"},
        "scheduler": {"max_num_seqs": 256, "max_num_batched_tokens": 8192},
        "engine": {"version": "0.33.0"},
    }
    if draft is not None:
        drafter = written(folder / "draft", draft)
        spec["speculative"] = {"method": "eagle3", "model": drafter, "num_speculative_tokens": k}
    return compiled(spec | sections)


def written(folder: Path, config: Json) -> str:
    """The path of a folder that holds a config."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)
