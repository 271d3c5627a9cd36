"""Recurrent layers: which of a model's layers keep a state, and which keys of its config.json give the state's size."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from servespec.compiler.facts.engine_file import in_model_file
from servespec.provenance import Sourced


class StateFamily(StrEnum):
    """Kinds of recurrent layers, by the engine's function that gives the shape of their state.

    Source: vllm/model_executor/layers/mamba/mamba_utils.py: MambaStateShapeCalculator.
    """

    GATED_DELTA_NET = "gated delta net"
    KDA = "Kimi delta attention"
    MAMBA1 = "Mamba"
    MAMBA2 = "Mamba 2"
    SHORT_CONV = "short convolution"


class LayerOrder(StrEnum):
    """How a config.json tells recurrent layers from attention."""

    TYPES = "`layer_types` or `layers_block_type`"
    INTERVAL = "`layer_types`, or attention every `full_attention_interval` layers"
    PERIOD = "attention every `attn_layer_period` layers from `attn_layer_offset`"
    PATTERN = "`hybrid_override_pattern`, a letter a layer, or `layers_block_type`"
    LISTS = "`linear_attn_config` with lists of layers, counted from 1"
    BOTH = "every layer has both"
    STATES = "no layer has attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """Keys of a config.json, '' where the family has no such size; ``inner`` are keys whose product is the width.

    ``section`` is where the keys stand.  ``recurrent_type_key`` may name the type of the recurrent state, else it is
    ``recurrent_type``; '' is the type of the convolution's.
    """

    family: StateFamily
    order: LayerOrder
    kernel: str
    inner: tuple[str, ...] = ()
    heads: str = ""
    width: str = ""
    key_heads: str = ""
    key_width: str = ""
    groups: str = ""
    state: str = ""
    section: str = ""
    recurrent_type_key: str = ""
    recurrent_type: str = ""


def _states(facts: StateFacts, file: str, quote: str) -> Sourced[StateFacts]:
    return in_model_file(facts, "keys of config.json", file, quote)


def _delta_net(file: str, order: LayerOrder, recurrent_type_key: str = "") -> Sourced[StateFacts]:
    return _states(
        StateFacts(
            family=StateFamily.GATED_DELTA_NET,
            order=order,
            kernel="linear_conv_kernel_dim",
            heads="linear_num_value_heads",
            width="linear_value_head_dim",
            key_heads="linear_num_key_heads",
            key_width="linear_key_head_dim",
            recurrent_type_key=recurrent_type_key,
        ),
        file,
        "hf_config.linear_num_key_heads, hf_config.linear_num_value_heads, hf_config.linear_key_head_dim,",
    )


_QWEN3_NEXT = _delta_net("qwen3_next.py", LayerOrder.INTERVAL)
_QWEN3_5 = _delta_net("qwen3_5.py", LayerOrder.INTERVAL, "mamba_ssm_dtype")
_KIMI = _states(
    StateFacts(
        family=StateFamily.KDA,
        order=LayerOrder.LISTS,
        section="linear_attn_config",
        kernel="short_conv_kernel_size",
        heads="num_heads",
        width="head_dim",
        recurrent_type="float32",
    ),
    "vllm/models/kimi_k3/nvidia/model.py",
    'hf_config.linear_attn_config["num_heads"], hf_config.linear_attn_config["head_dim"],',
)
_NEMOTRON = _states(
    StateFacts(
        family=StateFamily.MAMBA2,
        order=LayerOrder.PATTERN,
        kernel="conv_kernel",
        inner=("mamba_num_heads", "mamba_head_dim"),
        heads="mamba_num_heads",
        width="mamba_head_dim",
        groups="n_groups",
        state="ssm_state_size",
        recurrent_type_key="mamba_ssm_cache_dtype",
        recurrent_type="float32",
    ),
    "nemotron_h.py",
    "intermediate_size = hf_config.mamba_num_heads * hf_config.mamba_head_dim",
)
_GRANITE = _states(
    StateFacts(
        family=StateFamily.MAMBA2,
        order=LayerOrder.TYPES,
        kernel="mamba_d_conv",
        inner=("mamba_expand", "hidden_size"),
        heads="mamba_n_heads",
        width="mamba_d_head",
        groups="mamba_n_groups",
        state="mamba_d_state",
    ),
    "granitemoehybrid.py",
    "intermediate_size = hf_config.mamba_expand * hf_config.hidden_size",
)
_FALCON_H1 = _states(
    StateFacts(
        family=StateFamily.MAMBA2,
        order=LayerOrder.BOTH,
        kernel="mamba_d_conv",
        inner=("mamba_d_ssm",),
        heads="mamba_n_heads",
        width="mamba_d_head",
        groups="mamba_n_groups",
        state="mamba_d_state",
    ),
    "falcon_h1.py",
    "if hf_config.mamba_d_ssm is None else hf_config.mamba_d_ssm",
)
_JAMBA = _states(
    StateFacts(
        family=StateFamily.MAMBA1,
        order=LayerOrder.PERIOD,
        kernel="mamba_d_conv",
        inner=("mamba_expand", "hidden_size"),
        state="mamba_d_state",
    ),
    "jamba.py",
    "intermediate_size=hf_config.mamba_expand * hidden_size, state_size=hf_config.mamba_d_state,",
)
_MAMBA = _states(
    StateFacts(
        family=StateFamily.MAMBA1,
        order=LayerOrder.STATES,
        kernel="conv_kernel",
        inner=("intermediate_size",),
        state="state_size",
    ),
    "mamba.py",
    "intermediate_size=hf_config.intermediate_size, state_size=hf_config.state_size,",
)
_MAMBA2 = _states(
    StateFacts(
        family=StateFamily.MAMBA2,
        order=LayerOrder.STATES,
        kernel="conv_kernel",
        inner=("expand", "hidden_size"),
        heads="num_heads",
        width="head_dim",
        groups="n_groups",
        state="state_size",
    ),
    "mamba2.py",
    "intermediate_size = hf_config.expand * hf_config.hidden_size",
)


def _short_conv(file: str, inner: str) -> Sourced[StateFacts]:
    return _states(
        StateFacts(family=StateFamily.SHORT_CONV, order=LayerOrder.TYPES, kernel="conv_L_cache", inner=(inner,)),
        file,
        f"intermediate_size=hf_config.{inner}, conv_kernel=hf_config.conv_L_cache,",
    )


STATE_LAYERS: Final[Mapping[str, Sourced[StateFacts]]] = MappingProxyType(
    {
        "Qwen3NextForCausalLM": _QWEN3_NEXT,
        "Qwen3_5ForCausalLM": _QWEN3_5,
        "Qwen3_5ForConditionalGeneration": _QWEN3_5,
        "Qwen3_5MoeForCausalLM": _QWEN3_5,
        "Qwen3_5MoeForConditionalGeneration": _QWEN3_5,
        "OlmoHybridForCausalLM": _delta_net("olmo_hybrid.py", LayerOrder.TYPES),
        "KimiLinearForCausalLM": _KIMI,
        "KimiK3ForConditionalGeneration": _KIMI,
        "NemotronHForCausalLM": _NEMOTRON,
        "GraniteMoeHybridForCausalLM": _GRANITE,
        "FalconH1ForCausalLM": _FALCON_H1,
        "JambaForCausalLM": _JAMBA,
        "Lfm2ForCausalLM": _short_conv("lfm2.py", "conv_dim"),
        "Lfm2MoeForCausalLM": _short_conv("lfm2_moe.py", "hidden_size"),
        "MambaForCausalLM": _MAMBA,
        "FalconMambaForCausalLM": _MAMBA,
        "Mamba2ForCausalLM": _MAMBA2,
    }
)
"""By the architecture's name in config.json; the engine's other hybrids are not counted."""

CHECKPOINT_TOKENS: Final = Sourced(
    64,
    "tokens",
    "vllm",
    "0.33.0",
    "vllm/v1/attention/backends/gdn_attn.py",
    "FLASHINFER_GDN_CHECKPOINT_ALIGNMENT = 64",
    "blocks of a model with gated delta nets are a multiple of this where prefixes are cached",
)
LATENT_HYBRID_BLOCK_TOKENS: Final = Sourced(
    128,
    "tokens",
    "vllm",
    "0.33.0",
    "vllm/platforms/interface.py",
    "kernel_block_alignment_size = max(kernel_block_alignment_size, 128)",
    "blocks of latent attention beside states are a multiple of this",
)
ATTENTION_INTERVAL: Final = Sourced(
    4,
    "layers",
    "transformers",
    "5.19.0",
    "transformers/models/qwen3_next/configuration_qwen3_next.py",
    'interval_pattern = kwargs.pop("full_attention_interval", 4)',
    "where the config names neither its layers nor the interval",
)
