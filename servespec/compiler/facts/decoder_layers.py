"""What tensors a decoder layer of each known architecture stores, where its config.json alone does not tell."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from servespec.compiler.facts.engine_file import in_model_file
from servespec.provenance import Sourced

_MODELS = "vllm/model_executor/models"


class Presence(StrEnum):
    """Whether a tensor is there; ``CONFIG`` leaves it to a flag of the config."""

    NEVER = "never"
    ALWAYS = "always"
    CONFIG = "config"


class QkNorm(StrEnum):
    """Norms of queries and keys: one weight for every element of a head, or of all heads."""

    NONE = "none"
    HEAD = "head"
    ALL_HEADS = "all heads"


class DenseLayers(StrEnum):
    """Which layers of a mixture of experts have an ordinary MLP."""

    NONE = "none"
    FIRST = "the first `first_k_dense_replace`"
    FIRST_AND_STEP = "the first `first_k_dense_replace`, and all but every `moe_layer_freq`th"
    LISTED = "those with a 0 in `moe_layer_freq`"
    STEP = "all but every `decoder_sparse_step`th, and `mlp_only_layers`"


class Router(StrEnum):
    """What a router stores: a bias beside its matrix is one fp32 element for each expert."""

    PLAIN = "a matrix, and a bias where `topk_method` is `noaux_tc`"
    BIASED = "a matrix and a bias"
    WIDE = "a matrix in fp32 and a bias"
    FLAGGED = "a matrix in fp32, and a bias where `use_routing_bias` is on"


class SharedExperts(StrEnum):
    """Experts that every token takes."""

    NONE = "none"
    COUNT = "`n_shared_experts` or `num_shared_experts` of the routed experts' width"
    WIDTH = "one of `shared_expert_intermediate_size`, with a gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFacts:
    """``expert_width`` is the key of a routed expert's width, None without experts.

    ``mlp_width`` is the key of an ordinary MLP's width.  ``rotated_share`` is the part of a head that rotates where the
    config does not say.  ``gate_flag`` is the key of a gate on attention's output, which has one unless the config says
    otherwise where ``has_gate``.  ``bias_keys`` are those that a bias of attention is asked for by; ``qkv_bias_key``
    decides of queries, keys and values instead where the config has it.  Not ``can_tie``: the output head is a matrix
    of its own whatever the config says.
    """

    qkv_bias: Presence = Presence.CONFIG
    bias_keys: tuple[str, ...] = ("attention_bias",)
    qkv_bias_key: str | None = None
    output_bias: Presence = Presence.NEVER
    mlp_bias: Presence = Presence.NEVER
    qk_norm: QkNorm = QkNorm.NONE
    qk_norm_flag: str | None = None
    is_latent: bool = False
    expert_width: str | None = None
    expert_bias: bool = False
    dense_layers: DenseLayers = DenseLayers.NONE
    shared_experts: SharedExperts = SharedExperts.NONE
    router: Router = Router.PLAIN
    has_sinks: bool = False
    is_compressed: bool = False
    mlp_width: str = "intermediate_size"
    gate_flag: str | None = None
    has_gate: bool = False
    rotated_share: float = 1.0
    can_tie: bool = True


def _layers(facts: LayerFacts, file: str, quote: str) -> Sourced[LayerFacts]:
    return in_model_file(facts, "tensors", file, quote)


_LLAMA = _layers(
    LayerFacts(
        bias_keys=("attention_bias", "bias"),
        qkv_bias_key="qkv_bias",
        output_bias=Presence.CONFIG,
        mlp_bias=Presence.CONFIG,
    ),
    "llama.py",
    "bias_o_proj = attention_bias",
)
_QWEN2 = _layers(LayerFacts(qkv_bias=Presence.ALWAYS), "qwen2.py", "self.total_num_kv_heads, bias=True,")
_QWEN3 = _layers(LayerFacts(qk_norm=QkNorm.HEAD), "qwen3.py", "self.q_norm = RMSNorm(self.head_dim, eps=rms_norm_eps)")
_QWEN2_MOE = _layers(
    LayerFacts(
        qkv_bias=Presence.ALWAYS,
        expert_width="moe_intermediate_size",
        dense_layers=DenseLayers.STEP,
        shared_experts=SharedExperts.WIDTH,
    ),
    "qwen2_moe.py",
    "intermediate_size=config.shared_expert_intermediate_size",
)
_QWEN3_MOE = _layers(
    LayerFacts(qk_norm=QkNorm.HEAD, expert_width="moe_intermediate_size", dense_layers=DenseLayers.STEP),
    "qwen3_moe.py",
    "config.num_experts > 0 and (layer_idx + 1) % config.decoder_sparse_step == 0",
)
_MIXTRAL = _layers(
    LayerFacts(qkv_bias=Presence.NEVER, expert_width="intermediate_size"),
    "mixtral.py",
    "intermediate_size=config.intermediate_size",
)
_GPT_OSS = _layers(
    LayerFacts(
        qkv_bias=Presence.ALWAYS,
        output_bias=Presence.ALWAYS,
        expert_width="intermediate_size",
        expert_bias=True,
        has_sinks=True,
        can_tie=False,
    ),
    "gpt_oss.py",
    "self.sinks = make_attention_sink(config.num_attention_heads // tp_size)",
)
_DEEPSEEK = LayerFacts(
    qkv_bias=Presence.NEVER,
    is_latent=True,
    expert_width="moe_intermediate_size",
    dense_layers=DenseLayers.FIRST_AND_STEP,
    shared_experts=SharedExperts.COUNT,
    can_tie=False,
)
_DEEPSEEK_V2 = _layers(
    _DEEPSEEK, "deepseek_v2.py", "intermediate_size = config.moe_intermediate_size * config.n_shared_experts"
)
_GLM4_MOE_LITE = _layers(
    replace(_DEEPSEEK, router=Router.WIDE), "glm4_moe_lite.py", "and layer_idx >= config.first_k_dense_replace"
)
_GLM_DSA = _layers(_DEEPSEEK, "registry.py", '"GlmMoeDsaForCausalLM": ("vllm.models.deepseek_v32",')
_GLM4_MOE = _layers(
    LayerFacts(
        qk_norm=QkNorm.HEAD,
        qk_norm_flag="use_qk_norm",
        expert_width="moe_intermediate_size",
        dense_layers=DenseLayers.FIRST,
        shared_experts=SharedExperts.COUNT,
        router=Router.WIDE,
        rotated_share=0.5,
        can_tie=False,
    ),
    "glm4_moe.py",
    'config.rope_parameters.setdefault("partial_rotary_factor", 0.5)',
)
_MINIMAX_M2 = _layers(
    LayerFacts(qk_norm=QkNorm.ALL_HEADS, expert_width="intermediate_size", router=Router.FLAGGED, can_tie=False),
    "minimax_m2.py",
    "self.q_norm = MiniMaxText01RMSNormTP(",
)
_QWEN3_HYBRID = LayerFacts(
    bias_keys=(),
    qkv_bias_key="qkv_bias",
    qk_norm=QkNorm.HEAD,
    gate_flag="attn_output_gate",
    has_gate=True,
    rotated_share=0.25,
)
_QWEN3_HYBRID_EXPERTS = replace(
    _QWEN3_HYBRID,
    expert_width="moe_intermediate_size",
    dense_layers=DenseLayers.STEP,
    shared_experts=SharedExperts.WIDTH,
)
_GATE = 'self.attn_output_gate = getattr(config, "attn_output_gate", True)'
_QWEN3_NEXT = _layers(replace(_QWEN3_HYBRID_EXPERTS, can_tie=False), "qwen3_next.py", _GATE)
_QWEN3_5 = _layers(_QWEN3_HYBRID, "qwen3_next.py", _GATE)
_QWEN3_5_MOE = _layers(_QWEN3_HYBRID_EXPERTS, "qwen3_next.py", _GATE)
_KIMI_LINEAR = _layers(
    replace(_DEEPSEEK, router=Router.BIASED),
    "vllm/models/kimi_k3/nvidia/model.py",
    "moe_intermediate_size * self.num_shared_experts",
)
_DEEPSEEK_V4 = _layers(
    LayerFacts(
        qkv_bias=Presence.NEVER,
        is_compressed=True,
        expert_width="moe_intermediate_size",
        shared_experts=SharedExperts.COUNT,
        can_tie=False,
    ),
    "vllm/models/deepseek_v4/nvidia/model.py",
    "intermediate_size = config.moe_intermediate_size * config.n_shared_experts",
)
_MINIMAX_M3 = _layers(
    LayerFacts(
        qkv_bias=Presence.NEVER,
        qk_norm=QkNorm.HEAD,
        expert_width="intermediate_size",
        mlp_width="dense_intermediate_size",
        dense_layers=DenseLayers.LISTED,
        shared_experts=SharedExperts.COUNT,
        router=Router.FLAGGED,
        rotated_share=0.5,
        can_tie=False,
    ),
    "vllm/models/minimax_m3/nvidia/model.py",
    "intermediate_size=config.intermediate_size * self.n_shared_experts",
)

DECODER_LAYERS: Final[Mapping[str, Sourced[LayerFacts]]] = MappingProxyType(
    {
        "LlamaForCausalLM": _LLAMA,
        "MistralForCausalLM": _LLAMA,
        "Qwen2ForCausalLM": _QWEN2,
        "Qwen3ForCausalLM": _QWEN3,
        "Qwen2MoeForCausalLM": _QWEN2_MOE,
        "Qwen3MoeForCausalLM": _QWEN3_MOE,
        "MixtralForCausalLM": _MIXTRAL,
        "GptOssForCausalLM": _GPT_OSS,
        "DeepseekV2ForCausalLM": _DEEPSEEK_V2,
        "DeepseekV3ForCausalLM": _DEEPSEEK_V2,
        "DeepseekV32ForCausalLM": _DEEPSEEK_V2,
        "GlmMoeDsaForCausalLM": _GLM_DSA,
        "Glm4MoeForCausalLM": _GLM4_MOE,
        "Glm4MoeLiteForCausalLM": _GLM4_MOE_LITE,
        "MiniMaxM2ForCausalLM": _MINIMAX_M2,
        "MiniMaxM3SparseForCausalLM": _MINIMAX_M3,
        "MiniMaxM3SparseForConditionalGeneration": _MINIMAX_M3,
        "DeepseekV4ForCausalLM": _DEEPSEEK_V4,
        "Qwen3NextForCausalLM": _QWEN3_NEXT,
        "Qwen3_5ForCausalLM": _QWEN3_5,
        "Qwen3_5ForConditionalGeneration": _QWEN3_5,
        "Qwen3_5MoeForCausalLM": _QWEN3_5_MOE,
        "Qwen3_5MoeForConditionalGeneration": _QWEN3_5_MOE,
        "KimiLinearForCausalLM": _KIMI_LINEAR,
    }
)
"""By the architecture's name in config.json."""

TIED_MODEL_TYPES: Final = Sourced(
    frozenset(
        {
            "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text",
            "gemma3n_text", "gemma4_text", "gpt2", "lfm2", "lfm2_moe", "opt", "smollm3", "starcoder2", "zamba2",
        }
    ),
    "model types",
    "transformers",
    "5.19.0",
    "transformers/models",
    "tie_word_embeddings: bool = True",
    "their configs leave the key out where the embedding is the output head too",
)  # fmt: skip
VOCABULARY_PADDING: Final = Sourced(
    64,
    "tokens",
    "vllm",
    "0.33.0",
    "vllm/model_executor/layers/vocab_parallel_embedding.py",
    "DEFAULT_VOCAB_PADDING_SIZE = 64",
)
WHOLE_EMBEDDINGS: Final = in_model_file(
    ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
    "architectures",
    "vllm/model_executor/layers/fused_embed_norm.py",
    "disable_tp = envs.VLLM_REPLICATE_EMBED",
)
"""Models that make their embedding by it, so that every rank may hold all of it."""
EAGLE3_HIDDEN_STATES: Final = Sourced(
    3,
    "hidden states of the target",
    "vllm",
    "0.33.0",
    f"{_MODELS}/llama_eagle3.py",
    "self.num_aux_hidden_states = len(layer_ids) if layer_ids else 3",
)
EAGLE3_ARCHITECTURES: Final = Sourced(
    (
        "LlamaForCausalLMEagle3",
        "Eagle3LlamaForCausalLM",
        "Eagle3MiniMaxM2ForCausalLM",
        "Eagle3Qwen2_5vlForCausalLM",
        "Eagle3Qwen3vlForCausalLM",
    ),
    "architectures",
    "vllm",
    "0.33.0",
    f"{_MODELS}/registry.py",
    '"LlamaForCausalLMEagle3": ("llama_eagle3", "Eagle3LlamaForCausalLM"),',
    "served by the one-layer Llama head",
)
EAGLE3_LAYER: Final = _layers(
    LayerFacts(output_bias=Presence.CONFIG, mlp_bias=Presence.CONFIG),
    "llama_eagle3.py",
    'qkv_bias = getattr(config, "attention_bias", False)',
)
