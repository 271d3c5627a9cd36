"""Models of the launches whose memory was measured: the sizes of public Qwen3 models, with dummy weights."""

import json
from pathlib import Path
from typing import Any

from servespec.compiler.plan import Plan
from tests.plans import compiled, model_folder, preset_model

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


def public(name: str, **changes: Any) -> Json:
    """A model of ``tests/models``."""
    config: Json = json.loads(Path(model_folder(name), "config.json").read_text(encoding="utf-8"))
    return config | changes


def public_preset(name: str, **changes: Any) -> Json:
    """A model that presets bring, with changes."""
    config: Json = json.loads(Path(preset_model(name), "config.json").read_text(encoding="utf-8"))
    return config | changes


FP8: Json = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
DEEPSEEK_V4_FLASH = public("deepseek-v4-flash-fp4")
MINIMAX_M3 = public("minimax-m3-nvfp4")
QWEN3_NEXT_80B = {key: value for key, value in public("qwen3-next-80b-a3b-fp8").items() if key not in FP8}
KIMI_LINEAR_48B = public("kimi-linear-48b-a3b-instruct")


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
