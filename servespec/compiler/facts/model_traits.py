"""What a model's config.json says, as far as it says it: shapes, kind of attention, longest context.

Every field is None where the file alone does not tell; the engine fills some of those from the config
classes of another library.  Sources: vllm/transformers_utils/model_arch_config_convertor.py,
vllm/transformers_utils/config.py and vllm/config/model.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from servespec.compiler.facts.architecture_tables import ARCHITECTURE_TABLES
from servespec.compiler.facts.architectures import STATE_BACKENDS
from servespec.compiler.facts.windows import ASKED_FOR_WINDOWS, DEFAULT_WINDOWS
from servespec.provenance import Origin, Resolved, Sourced
from servespec.units import Tokens

_CONVERTOR = "vllm/transformers_utils/model_arch_config_convertor.py"
_CONFIG = "vllm/transformers_utils/config.py"
_MODEL = "vllm/config/model.py"

_TEXT_PARTS = ("text_config", "language_config", "llm_config")
_THINKER = "thinker_config"

Config = Mapping[str, Any]


LAYER_KEYS: Final = ("num_hidden_layers", "n_layer", "num_layers")
# chosen: the deepest public models have about 200
MOST_LAYERS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """A model as its config.json describes it; of a multimodal model, the language part.

    ``head_size`` is a head's width in the KV cache; ``state_backends`` is None where the architecture has recurrent
    layers that we do not know.  ``uses_sparse_index`` means DeepSeek sparse attention;
    ``checkpoint_kv_cache_dtype`` is what `auto` becomes for the checkpoint, None where it stays `auto`.
    """

    architectures: tuple[str, ...]
    model_type: str | None
    text_model_type: str | None
    num_hidden_layers: int | None
    hidden_size: int | None
    intermediate_size: int | None
    moe_intermediate_size: int | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    head_dim: int | None
    head_size: int | None
    kv_lora_rank: int | None
    q_lora_rank: int | None
    qk_nope_head_dim: int | None
    qk_rope_head_dim: int | None
    v_head_dim: int | None
    index_topk: int | None
    vocab_size: int | None
    max_position_embeddings: int | None
    num_experts: int | None
    num_experts_per_token: int | None
    layer_types: tuple[str, ...] | None
    sliding_window: int | None
    attn_logit_softcapping: float | None
    dtype: str | None
    tie_word_embeddings: bool | None
    quantization_method: str | None
    quantization_config: Config | None
    is_mla: bool
    uses_sparse_index: bool
    is_mixture_of_experts: bool
    is_hybrid: bool
    is_attention_free: bool
    is_encoder_decoder: bool
    is_pooling: bool
    is_multimodal: bool
    is_multimodal_prefix_lm: bool
    is_diffusion: bool
    has_attention_sinks: bool
    state_backends: tuple[str, ...] | None
    checkpoint_kv_cache_dtype: str | None


def model_traits(config: Config, version: str = "0.33.0") -> ModelTraits:
    """The traits of a config.json mapping, judged as that engine version would."""
    text = text_config(config)
    architectures = _strings(config.get("architectures")) or ()
    is_mla = uses_mla(config, version)
    is_hybrid = _is_hybrid(config, architectures, version)
    tables = ARCHITECTURE_TABLES[version]
    quantization = _quantization(config)
    index_topk = _integer(text, "index_topk")
    is_attention_free = not tables.attention_free.value.isdisjoint(architectures)
    is_multimodal = not tables.multimodal.value.isdisjoint(architectures)
    experts = num_experts(text)
    return ModelTraits(
        architectures=architectures,
        model_type=_string(config, "model_type"),
        text_model_type=_string(text, "model_type"),
        num_hidden_layers=_layers(text, *LAYER_KEYS),
        hidden_size=_integer(text, "hidden_size", "n_embd", "d_model"),
        intermediate_size=_integer(text, "intermediate_size"),
        moe_intermediate_size=_integer(text, "moe_intermediate_size"),
        num_attention_heads=_integer(text, "num_attention_heads", "n_head"),
        num_key_value_heads=num_kv_heads(text),
        head_dim=_head_dim(text),
        head_size=_head_size(text, is_mla),
        kv_lora_rank=_integer(text, "kv_lora_rank"),
        q_lora_rank=_integer(text, "q_lora_rank"),
        qk_nope_head_dim=_integer(text, "qk_nope_head_dim"),
        qk_rope_head_dim=_integer(text, "qk_rope_head_dim"),
        v_head_dim=_integer(text, "v_head_dim"),
        index_topk=index_topk,
        vocab_size=_integer(text, "vocab_size"),
        max_position_embeddings=_integer(text, "max_position_embeddings"),
        num_experts=experts,
        num_experts_per_token=_integer(text, *EXPERTS_PER_TOKEN_NAMES.value),
        layer_types=_strings(text.get("layer_types")),
        sliding_window=_sliding_window(text),
        attn_logit_softcapping=_number(text, "attn_logit_softcapping"),
        dtype=_dtype(config, text),
        tie_word_embeddings=_boolean(config, text, "tie_word_embeddings"),
        quantization_method=None if quantization is None else _string(quantization, "quant_method"),
        quantization_config=quantization,
        is_mla=is_mla,
        uses_sparse_index=is_mla and index_topk is not None,
        is_mixture_of_experts=bool(experts),
        is_hybrid=is_hybrid,
        is_attention_free=is_attention_free,
        is_encoder_decoder=bool(config.get("is_encoder_decoder") or text.get("is_encoder_decoder")),
        is_pooling=is_pooling(architectures, version),
        is_multimodal=is_multimodal,
        is_multimodal_prefix_lm=is_multimodal and _is_prefix_lm(config),
        is_diffusion=config.get("canvas_length") is not None,
        has_attention_sinks=_has_sinks(text, architectures),
        state_backends=_state_backends(architectures, is_hybrid or is_attention_free),
        checkpoint_kv_cache_dtype=_checkpoint_kv_cache_dtype(quantization),
    )


def text_config(config: Config) -> Config:
    """The language part of a multimodal config; the config itself where there is none."""
    part = config
    for key in text_path(config):
        part = part[key]
    return part


def text_path(config: Config) -> tuple[str, ...]:
    """The keys that lead to the language part, none where there is none."""
    thinker = config.get(_THINKER)
    start, outer = ((_THINKER,), thinker) if isinstance(thinker, Mapping) else ((), config)
    return next(((*start, name) for name in _TEXT_PARTS if isinstance(outer.get(name), Mapping)), start)


def laid_over(config: Config, overrides: Config) -> Config:
    """A config under `hf_overrides`: of a part that is a config itself only the keys that are named.

    Source: vllm/config/model.py: ModelConfig._apply_dict_overrides.
    """

    def value(key: str, override: Any) -> Any:
        below = config.get(key)
        if key not in (_THINKER, *_TEXT_PARTS) or not isinstance(below, Mapping) or not isinstance(override, Mapping):
            return override
        return laid_over(below, override)

    return {**config, **{key: value(key, override) for key, override in overrides.items()}}


def _aliases(quote: str, *names: str) -> Sourced[tuple[str, ...]]:
    return Sourced(names, "field names", "vllm", "0.33.0", _CONFIG, quote)


KV_HEAD_NAMES = _aliases(
    '"num_key_value_heads",  # LLaMA-2',
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
EXPERT_NAMES = _aliases(
    '"n_routed_experts",  # DeepSeek',
    "num_experts",
    "moe_num_experts",
    "n_routed_experts",
    "num_local_experts",
)
EXPERTS_PER_TOKEN_NAMES = _aliases(
    '"num_experts_per_tok", "num_experts_per_token", "top_k_experts",',
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "top_k",
)


ONE_KV_HEAD_MODEL_TYPES = Sourced(
    ("falcon", "RefinedWeb", "RefinedWebModel"),
    "model types",
    "vllm",
    "0.33.0",
    _CONVERTOR,
    'if not new_decoder_arch_falcon and getattr( self.hf_text_config, "multi_query", False ):',
    "`multi_query` is one KV head for all, unless `new_decoder_architecture`",
)
ONE_KV_HEAD_CONFIG_CLASSES = Sourced(
    ("gpt_bigcode",),
    "model types",
    "transformers",
    "5.19.0",
    "transformers/models/gpt_bigcode/configuration_gpt_bigcode.py",
    "self.num_key_value_heads = 1 if self.multi_query else self.n_head",
    "their config's class makes one KV head of `multi_query`",
)
DEFAULT_KV_HEADS = Sourced(
    MappingProxyType(
        {
            "cwm": 8, "dots1": 32, "ernie4_5": 2, "ernie4_5_moe": 4, "exaone4": 32, "exaone_moe": 32, "falcon_h1": 8,
            "gemma": 16, "gemma2": 4, "gemma3_text": 4, "gemma3n_text": 2, "gemma4_text": 4, "glm": 2, "glm4": 2,
            "glm4_moe": 8, "glm4v_moe_text": 8, "glm4v_text": 2, "gpt_oss": 8, "jamba": 8, "lfm2": 8, "lfm2_moe": 8,
            "llama4_text": 8, "minimax_m2": 8, "ministral": 8, "mistral": 8, "mixtral": 8, "nemotron_h": 8,
            "phimoe": 8, "qwen2": 32, "qwen2_5_omni_text": 4, "qwen2_5_vl_text": 8, "qwen2_moe": 16,
            "qwen2_vl_text": 8, "qwen3": 32, "qwen3_5_moe_text": 2, "qwen3_5_text": 4, "qwen3_moe": 4,
            "qwen3_next": 2, "qwen3_omni_moe_text": 4, "qwen3_vl_moe_text": 16, "qwen3_vl_text": 32, "seed_oss": 8,
            "smollm3": 4, "stablelm": 32, "starcoder2": 2, "vaultgemma": 4,
        }
    ),
    "heads, by model type",
    "transformers",
    "5.19.0",
    "transformers/models/mistral/configuration_mistral.py",
    "num_key_value_heads: int = 8",
    "KV heads where config.json has no `num_key_value_heads`, of models that do not take as many as attention heads",
)  # fmt: skip


def num_kv_heads(text: Config) -> int | None:
    """As many as attention heads where neither the config names any nor its class does."""
    if _has_one_kv_head(text):
        return 1
    found = _integer(text, *KV_HEAD_NAMES.value)
    if found is None and "num_key_value_heads" not in text:
        found = DEFAULT_KV_HEADS.value.get(_string(text, "model_type") or "")
    return _integer(text, "num_attention_heads", "n_head") if found is None else found


def _has_one_kv_head(text: Config) -> bool:
    kind = _string(text, "model_type")
    # The config's class turns `multi_query` on where config.json says nothing.
    is_asked = bool(text.get("multi_query", True))
    if kind in ONE_KV_HEAD_CONFIG_CLASSES.value:
        return is_asked
    return is_asked and kind in ONE_KV_HEAD_MODEL_TYPES.value and not text.get("new_decoder_architecture")


def num_experts(text: Config) -> int | None:
    """Routed experts of a layer; 0 where the config names none."""
    value = next((text[name] for name in EXPERT_NAMES.value if text.get(name) is not None), 0)
    if isinstance(value, list):
        value = value[0] if value else 0
    return value if isinstance(value, int) else None


def uses_mla(config: Config, version: str) -> bool:
    """Multi-head latent attention; source: model_arch_config_convertor.py, is_deepseek_mla."""
    text = text_config(config)
    if config.get("is_causal") is False:
        return False
    if _string(text, "model_type") not in ARCHITECTURE_TABLES[version].mla_model_types.value:
        return False
    key = "head_dim" if text.get("compress_ratios") else "kv_lora_rank"
    return text.get(key) is not None


def _head_size(text: Config, is_mla: bool) -> int | None:
    head_dim = _head_dim(text)
    if is_mla and not text.get("compress_ratios"):
        rank = _integer(text, "kv_lora_rank")
        return None if rank is None else rank + (_integer(text, "qk_rope_head_dim") or 0)
    if head_dim:
        return head_dim
    return _integer(text, "hidden_size_per_head") or _divided_head(text)


DEFAULT_HEAD_WIDTHS = Sourced(
    MappingProxyType(
        {
            "afmoe": 128, "cohere2_moe": 128, "cwm": 128, "ernie4_5": 128, "gemma": 256, "gemma2": 256,
            "gemma3_text": 256, "glm": 128, "glm4": 128, "gpt_oss": 64, "minimax_m2": 128, "qwen3": 128,
            "qwen3_5_moe_text": 256, "qwen3_5_text": 256, "qwen3_next": 256, "qwen3_vl_text": 128, "seed_oss": 128,
            "vaultgemma": 256,
        }
    ),
    "elements, by model type",
    "transformers",
    "5.19.0",
    "transformers/models/qwen3/configuration_qwen3.py",
    "head_dim: int = 128",
    "widths of heads where config.json has no `head_dim`, of models that do not divide the hidden size",
)  # fmt: skip


def _head_dim(text: Config) -> int | None:
    if "head_dim" in text:
        return _integer(text, "head_dim")
    return DEFAULT_HEAD_WIDTHS.value.get(_string(text, "model_type") or "")


def _divided_head(text: Config) -> int | None:
    hidden = _integer(text, "hidden_size", "n_embd", "d_model")
    heads = _integer(text, "num_attention_heads", "n_head")
    return hidden // heads if hidden and heads else None


def _is_hybrid(config: Config, architectures: tuple[str, ...], version: str) -> bool:
    if ARCHITECTURE_TABLES[version].hybrid.value.isdisjoint(architectures):
        return False
    layers = config.get("layer_types")
    if not isinstance(layers, Sequence):
        return True
    return not all(layer in ("attention", "full_attention") for layer in layers)


def _state_backends(architectures: tuple[str, ...], has_states: bool) -> tuple[str, ...] | None:
    if not has_states:
        return ()
    return next((STATE_BACKENDS[name] for name in architectures if name in STATE_BACKENDS), None)


POOLING_SUFFIXES = Sourced(
    (
        "ForTextEncoding",
        "EmbeddingModel",
        "ForSequenceClassification",
        "ForTokenClassification",
        "ForAudioClassification",
        "ForImageClassification",
        "ForVideoClassification",
        "ClassificationModel",
        "ForRewardModeling",
        "RewardModel",
        "Model",
    ),
    "name endings",
    "vllm",
    "0.33.0",
    _MODEL,
    '("ForTextEncoding", ("pooling", "embed")), ("EmbeddingModel", ("pooling", "embed")),',
)
GENERATING_SUFFIXES = Sourced(
    ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel"),
    "name endings",
    "vllm",
    "0.33.0",
    _MODEL,
    '("ForCausalLM", ("generate", "none")), ("ForConditionalGeneration", ("generate", "none")),',
)


def is_pooling(architectures: Sequence[str], version: str) -> bool:
    """Whether the engine would run the model as a pooling model by itself.

    Source: vllm/config/model.py, ModelConfig._get_default_runner_type.  A sentence-transformers folder makes
    it pool in any case, which config.json does not show.
    """
    tables = ARCHITECTURE_TABLES[version]
    for name in architectures:
        if name in tables.pooling.value or name in tables.generative.value:
            return name in tables.pooling.value
        if name.endswith(GENERATING_SUFFIXES.value):
            return False
        if name.endswith(POOLING_SUFFIXES.value):
            return True
    return False


PREFIX_LM_MODEL_TYPES = Sourced(
    ("bagel", "gemma3", "molmo2", "moondream3", "paligemma"),
    "model types",
    "vllm",
    "0.33.0",
    _CONVERTOR,
    'MM_PREFIX_LM_MODELS = ( "bagel", "gemma3", "molmo2", "moondream3", "paligemma", )',
)


def _sliding_window(text: Config) -> int | None:
    kind, asked = _string(text, "model_type"), text.get("use_sliding_window")
    if asked is False or (kind in ASKED_FOR_WINDOWS.value and not asked):
        return None
    return _integer(text, "sliding_window") if "sliding_window" in text else DEFAULT_WINDOWS.value.get(kind or "")


_SINK_FLAGS = ("attention_sinks", "add_swa_attention_sink_bias", "add_full_attention_sink_bias")


def _has_sinks(text: Config, architectures: Sequence[str]) -> bool:
    return "GptOssForCausalLM" in architectures or any(text.get(flag) is True for flag in _SINK_FLAGS)


KV_CACHE_ALGORITHMS = Sourced(
    MappingProxyType({"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}),
    "KV cache dtypes",
    "vllm",
    "0.33.0",
    "vllm/utils/torch_utils.py",
    'MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP = { "fp8": "fp8_e4m3", "nvfp4": "nvfp4", }',
)


def _checkpoint_kv_cache_dtype(section: Config | None) -> str | None:
    """What `auto` becomes for a ModelOpt checkpoint; source: torch_utils.py, get_kv_cache_quant_algo_string."""
    if section is None or not str(section.get("quant_method", "")).startswith("modelopt"):
        return None
    inner = section.get("quantization")
    places = (inner, section) if isinstance(inner, Mapping) else (section,)
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    algorithm = next((place[name] for name in names for place in places if place.get(name)), None)
    return None if algorithm is None else KV_CACHE_ALGORITHMS.value.get(_algorithm_name(algorithm))


def _algorithm_name(algorithm: object) -> str:
    if not isinstance(algorithm, Mapping):
        return str(algorithm).lower()
    bits, kind = algorithm.get("num_bits"), algorithm.get("type")
    if bits == 8 and kind == "float" and algorithm.get("dynamic") is False:
        return "fp8"
    return "nvfp4" if bits == 4 and kind == "float" else ""


def _is_prefix_lm(config: Config) -> bool:
    declared = config.get("is_mm_prefix_lm")
    return bool(declared) if declared is not None else _string(config, "model_type") in PREFIX_LM_MODEL_TYPES.value


def _quantization(config: Config) -> Config | None:
    """The first quantization section found, also under the compressed-tensors name."""
    places = (config, text_config(config))
    found = (place.get(name) for place in places for name in ("quantization_config", "compression_config"))
    section = next((one for one in found if isinstance(one, Mapping)), None)
    return None if section is None else MappingProxyType(dict(section))


def _dtype(config: Config, text: Config) -> str | None:
    names = ("dtype", "torch_dtype")
    values = (place.get(name) for place in (config, text) for name in names)
    value = next((one for one in values if isinstance(one, str)), None)
    return None if value is None else value.removeprefix("torch.")


def _integer(config: Config, *names: str) -> int | None:
    """The first that is a whole number; none of them can be negative."""
    values = (config.get(name) for name in names)
    return next((one for one in values if isinstance(one, int) and not isinstance(one, bool) and one >= 0), None)


def _layers(config: Config, *names: str) -> int | None:
    """None beyond any model: what is planned layer by layer would have no end."""
    found = _integer(config, *names)
    return found if found is not None and found <= MOST_LAYERS else None


def _number(config: Config, name: str) -> float | None:
    value = config.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _string(config: Config, name: str) -> str | None:
    value = config.get(name)
    return value if isinstance(value, str) else None


def _strings(value: object) -> tuple[str, ...] | None:
    return tuple(str(one) for one in value) if isinstance(value, list | tuple) else None


def _boolean(config: Config, text: Config, name: str) -> bool | None:
    values = (place.get(name) for place in (config, text))
    return next((one for one in values if isinstance(one, bool)), None)


LENGTH_NAMES = Sourced(
    (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "model_max_length",
        "max_target_positions",
        "max_sequence_length",
        "max_seq_length",
        "seq_len",
    ),
    "field names",
    "vllm",
    "0.33.0",
    _CONVERTOR,
    '"max_sequence_length", "max_seq_length", "seq_len", ]',
)
UNNAMED_LENGTH = Sourced(Tokens(2048), "tokens", "vllm", "0.33.0", _MODEL, "default_max_len = 2048")
UNSCALED_ROPE_TYPES = Sourced(
    ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"),
    "rope types",
    "vllm",
    "0.33.0",
    _MODEL,
    'if rope_type not in ( "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", ):',
)


def derived_max_model_len(config: Config) -> Resolved[Tokens | None]:
    """The longest context the engine takes from a config.json where none is asked for.

    Source: vllm/config/model.py, _get_and_verify_max_len.  A draft model that is shorter lowers it further
    (VllmConfig._limit_max_model_len_to_draft, see :func:`limited_to_draft`).
    """
    text = text_config(config)
    named = _named_length(text)
    if named is None:
        return _unnamed_length(config)
    length, key = named
    ropes = tuple(_rope_parameters(text))
    if any(rope.get("rope_type") in ("longrope", "su") for rope in ropes):
        return _long_rope(text, length, key)
    factor = _rope_factor(text, ropes)
    because = f"`{key}` in config.json" if factor == 1 else f"`{key}` times a rope factor of {factor:g}"
    return Resolved(Tokens(int(length * factor)), Origin.DERIVED, because)


LONG_VARIABLE = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""The variable with which the engine takes any length."""


def longest_askable_len(config: Config, *, without_window: bool) -> Tokens | None:
    """The longest context that may be asked for; None where a config.json names none, so that any may.

    ``without_window``: sliding windows are switched off, and positions end where one does.

    Source: vllm/config/model.py, _get_and_verify_max_len, where a length is given.
    """
    text = text_config(config)
    named = _named_length(text)
    window = _sliding_window(text) if without_window else None
    lengths = [length for length in (window, named and named[0]) if length is not None]
    if not lengths:
        return None
    longest = int(min(lengths) * _rope_factor(text, tuple(_rope_parameters(text))))
    return Tokens(max(longest, _integer(text, "model_max_length") or 0))


def _named_length(text: Config) -> tuple[int, str] | None:
    override = _integer(text, "model_max_length")
    if override:
        return override, "model_max_length"
    named = [(length, name) for name in LENGTH_NAMES.value if (length := _integer(text, name)) is not None]
    return min(named, key=lambda pair: pair[0]) if named else None


def _unnamed_length(config: Config) -> Resolved[Tokens | None]:
    if "text_config" in config or not config.get("model_type"):
        return Resolved(None, Origin.DERIVED, "config.json names no length and the engine's classes may")
    return Resolved(UNNAMED_LENGTH.value, Origin.ENGINE_DEFAULT, "config.json names no length")


def _long_rope(text: Config, length: int, key: str) -> Resolved[Tokens | None]:
    original = _integer(text, "original_max_position_embeddings")
    name = key if original is None else "original_max_position_embeddings"
    return Resolved(Tokens(original or length), Origin.DERIVED, f"`{name}` in config.json, a LongRoPE model")


def _rope_parameters(text: Config) -> Iterator[Config]:
    section = text.get("rope_parameters") or text.get("rope_scaling")
    if not isinstance(section, Mapping):
        return
    nested = [one for one in section.values() if isinstance(one, Mapping)]
    for one in nested or [section]:
        yield {**one, "rope_type": str(one.get("rope_type") or one.get("type") or "default")}


def _rope_factor(text: Config, ropes: Sequence[Config]) -> float:
    if "gemma3" in str(text.get("model_type")):
        return 1.0
    factors = [_number(rope, "factor") for rope in ropes if _scales_length(rope)]
    return (factors[-1] if factors else None) or 1.0


def _scales_length(rope: Config) -> bool:
    return rope["rope_type"] not in UNSCALED_ROPE_TYPES.value and "factor" in rope


def limited_to_draft(length: Tokens, draft_length: Tokens | None) -> Tokens:
    """Model Runner V2 serves no sequence that its draft model cannot follow.

    Source: vllm/config/vllm.py of 0.33.0, VllmConfig._limit_max_model_len_to_draft.
    """
    return length if draft_length is None else min(length, draft_length)
