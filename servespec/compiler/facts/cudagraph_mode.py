"""The engine's CUDA-graph modes, compilation modes and attention support levels, and their sourced tables.

Sources: vllm/config/compilation.py (CUDAGraphMode, CompilationMode), vllm/config/vllm.py
(OPTIMIZATION_LEVEL_TO_CONFIG) and vllm/v1/attention/backend.py (AttentionCGSupport).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

from servespec.provenance import Sourced

COMPILATION = "vllm/config/compilation.py"
VLLM_CONFIG = "vllm/config/vllm.py"
_LMCACHE = "vllm/distributed/kv_transfer/kv_connector/v1/lmcache_connector.py"
_MULTI = "vllm/distributed/kv_transfer/kv_connector/v1/multi_connector.py"
_MULTI_MODULE = "vllm/v1/worker/gpu/spec_decode/multi_module_mtp/speculator.py"
_MODEL_HOOKS = "vllm/model_executor/models/config.py"


class CudaGraphMode(StrEnum):
    """Which batches run from graphs; two-part modes name decode first, then everything else."""

    NONE = "NONE"
    PIECEWISE = "PIECEWISE"
    FULL = "FULL"
    FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"

    def separate_routine(self) -> bool:
        """Decode and mixed batches have graphs of their own."""
        return self in (CudaGraphMode.FULL_DECODE_ONLY, CudaGraphMode.FULL_AND_PIECEWISE)

    def decode_mode(self) -> "CudaGraphMode":
        """The mode of uniform decode batches: NONE, PIECEWISE or FULL."""
        return CudaGraphMode.FULL if self.separate_routine() else self

    def mixed_mode(self) -> "CudaGraphMode":
        """The mode of all other batches: NONE, PIECEWISE or FULL."""
        if self is CudaGraphMode.FULL_DECODE_ONLY:
            return CudaGraphMode.NONE
        return CudaGraphMode.PIECEWISE if self is CudaGraphMode.FULL_AND_PIECEWISE else self

    def has_full(self) -> bool:
        return self.decode_mode() is CudaGraphMode.FULL

    def has_piecewise(self) -> bool:
        return self.mixed_mode() is CudaGraphMode.PIECEWISE

    def without_piecewise(self) -> "CudaGraphMode":
        """What is left where no piece of the model can be captured."""
        if self is CudaGraphMode.PIECEWISE:
            return CudaGraphMode.NONE
        return CudaGraphMode.FULL_DECODE_ONLY if self is CudaGraphMode.FULL_AND_PIECEWISE else self


class CompilationMode(IntEnum):
    """How the engine compiles a model; only VLLM_COMPILE makes the pieces of PIECEWISE."""

    NONE = 0
    STOCK_TORCH_COMPILE = 1
    DYNAMO_TRACE_ONCE = 2
    VLLM_COMPILE = 3


class AttentionCgSupport(IntEnum):
    """Which batches an attention backend can replay from a full graph; more is better."""

    NEVER = 0
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    UNIFORM_BATCH = 2
    ALWAYS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFacts:
    """The tables that the resolution of the mode reads, for one engine version.

    ``v1_tier_methods``: the speculative methods that keep tiers on Model Runner V1; None: all of them do.
    ``multi_module_keeps_pieces``: multi-module MTP has piecewise graphs where graphs are breakable.
    """

    level_modes: Mapping[int, Sourced[CudaGraphMode]]
    attention_ops: Sourced[tuple[str, ...]]
    v1_tier_methods: Sourced[tuple[str, ...]] | None
    default_mode_hooks: Mapping[str, Sourced[CudaGraphMode]]
    graphless_all2all: Sourced[str]
    graphless_compiled_all2all: Sourced[str]
    piecewise_connectors: tuple[Sourced[str], ...]
    multi_module_keeps_pieces: Sourced[bool]


def _level(version: str, level: int, mode: CudaGraphMode) -> Sourced[CudaGraphMode]:
    quote = f'"cudagraph_mode": CUDAGraphMode.{mode},'
    return Sourced(mode, f"mode at -O{level}", "vllm", version, VLLM_CONFIG, quote)


_ATTENTION_OPS = (
    "vllm::unified_attention_with_output",
    "vllm::unified_mla_attention_with_output",
    "vllm::mamba_mixer2",
    "vllm::mamba_mixer",
    "vllm::short_conv",
    "vllm::qwen4_exp_ple_short_conv",
    "vllm::qwen4_exp_qsa_with_output",
    "vllm::qwen4_exp_qsa_prepare_with_output",
    "vllm::linear_attention",
    "vllm::qwen_gdn_attention_core",
    "vllm::qwen_gdn_attention_core_fused_norm_packed",
    "vllm::gdn_attention_core_xpu",
    "vllm::olmo_hybrid_gdn_full_forward",
    "vllm::sparse_attn_indexer",
    "vllm::rocm_aiter_sparse_attn_indexer",
    "vllm::deepseek_v4_attention",
    "vllm::hpc_rope_norm_forward",
)


def _attention_ops(version: str) -> Sourced[tuple[str, ...]]:
    quote = '_attention_ops: ClassVar[list[str]] = [ "vllm::unified_attention_with_output", '
    quote += '"vllm::unified_mla_attention_with_output",'
    return Sourced(_ATTENTION_OPS, "operators", "vllm", version, COMPILATION, quote)


_V1_TIERS_QUOTE = 'in ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")'
_BREAKABLE_MODULES_QUOTE = """
    cudagraph_mode.has_piecewise_cudagraphs()
    and not is_breakable_cudagraph_enabled()"""
_NO_MODULE_PIECES_QUOTE = "if cudagraph_mode.has_piecewise_cudagraphs(): cudagraph_mode = ("
_LONGCAT_QUOTE = """
    if compilation_config.cudagraph_mode is None:
        compilation_config.cudagraph_mode = CUDAGraphMode.FULL"""


def _mode_facts(
    version: str,
    v1_tier_methods: Sourced[tuple[str, ...]] | None,
    multi_module_keeps_pieces: Sourced[bool],
) -> ModeFacts:
    longcat = Sourced(CudaGraphMode.FULL, "mode", "vllm", version, _MODEL_HOOKS, _LONGCAT_QUOTE)
    return ModeFacts(
        level_modes=MappingProxyType(
            {
                0: _level(version, 0, CudaGraphMode.NONE),
                1: _level(version, 1, CudaGraphMode.PIECEWISE),
                2: _level(version, 2, CudaGraphMode.FULL_AND_PIECEWISE),
                3: _level(version, 3, CudaGraphMode.FULL_AND_PIECEWISE),
            }
        ),
        attention_ops=_attention_ops(version),
        v1_tier_methods=v1_tier_methods,
        default_mode_hooks=MappingProxyType({"LongcatFlashNgramForCausalLM": longcat}),
        graphless_all2all=Sourced(
            "moonep",
            "all2all backend",
            "vllm",
            version,
            VLLM_CONFIG,
            'if self.parallel_config.all2all_backend == "moonep":',
        ),
        graphless_compiled_all2all=Sourced(
            "deepep_high_throughput",
            "all2all backend",
            "vllm",
            version,
            COMPILATION,
            'all2all_backend == "deepep_high_throughput" and data_parallel_size > 1',
        ),
        piecewise_connectors=(
            Sourced(
                "LMCacheConnectorV1",
                "KV connector",
                "vllm",
                version,
                _LMCACHE,
                'return extra_config.get("use_layerwise", False)',
            ),
            Sourced(
                "MultiConnector",
                "KV connector",
                "vllm",
                version,
                _MULTI,
                "if connector_cls.requires_piecewise_for_cudagraph(child_extra_config): return True",
            ),
        ),
        multi_module_keeps_pieces=multi_module_keeps_pieces,
    )


_V1_TIER_METHODS = ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")

MODE_FACTS: Mapping[str, ModeFacts] = MappingProxyType(
    {
        "0.33.0": _mode_facts(
            "0.33.0",
            Sourced(_V1_TIER_METHODS, "methods", "vllm", "0.33.0", VLLM_CONFIG, _V1_TIERS_QUOTE),
            Sourced(True, "flag", "vllm", "0.33.0", _MULTI_MODULE, _BREAKABLE_MODULES_QUOTE),
        ),
        "0.32.0": _mode_facts(
            "0.32.0", None, Sourced(False, "flag", "vllm", "0.32.0", _MULTI_MODULE, _NO_MODULE_PIECES_QUOTE)
        ),
    }
)


def connector_needs_piecewise(connector: str | None, extra_config: Mapping[str, Any]) -> bool:
    """Whether a KV connector works between layers, so that decode cannot be one graph.

    ``connector`` is the class name the engine registers it under; unknown connectors are taken for the
    engine's base class, which does not.
    """
    if connector == "LMCacheConnectorV1":
        return bool(extra_config.get("use_layerwise", False))
    if connector != "MultiConnector":
        return False
    children: list[Mapping[str, Any]] = list(extra_config.get("connectors", []))
    return any(
        connector_needs_piecewise(child.get("kv_connector"), child.get("kv_connector_extra_config") or {})
        for child in children
    )
