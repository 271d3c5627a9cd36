"""Default batch limits of the engine's API server, per version, device and parallel layout.

Source of all: vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from servespec.compiler.facts.devices import GIB_BYTES, Device, is_cpu
from servespec.provenance import Sourced
from servespec.units import Bytes, Requests, Tokens

ARG_UTILS = "vllm/engine/arg_utils.py"
BATCH_DEFAULTS_SOURCE = f"{ARG_UTILS}: EngineArgs.get_batch_defaults"


@dataclass(frozen=True, slots=True)
class BatchDefaults:
    max_num_seqs: Requests
    max_num_batched_tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTier:
    """Defaults of one class of device; ``reason`` says in a few words which devices belong to it."""

    defaults: BatchDefaults
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """Everything that :func:`batch_tier` reads, for one engine version.

    ``compute_poor_capability``: a capability kept on the small tier whatever its memory, or None.
    ``asks_draft_lookahead``: the scheduler compares its limits with the drafter's look-ahead slots and lowers
    the running requests of block drafters; else it compares with the slots a draft pass adds.
    """

    large_memory_bytes: Sourced[Bytes]
    mid_memory_bytes: Sourced[Bytes]
    excluded_name: Sourced[str]
    compute_poor_capability: Sourced[tuple[int, int]] | None
    large: Sourced[BatchDefaults]
    mid: Sourced[BatchDefaults]
    small: Sourced[BatchDefaults]
    cpu_per_rank: Sourced[BatchDefaults]
    batched_expert_tokens: Sourced[Tokens]
    batched_expert_backends: Sourced[tuple[str, ...]]
    scheduled_tokens_warning_below: Sourced[Tokens]
    asks_draft_lookahead: bool


def _pair(seqs: int, tokens: int) -> BatchDefaults:
    return BatchDefaults(Requests(seqs), Tokens(tokens))


_LARGE_QUOTE = """
    default_max_num_batched_tokens = {
        UsageContext.LLM_CLASS: 16384,
        UsageContext.OPENAI_API_SERVER: 16384,
    }
    default_max_num_seqs = {
        UsageContext.LLM_CLASS: 1024,
        UsageContext.OPENAI_API_SERVER: 1024,
    }"""
_MID_QUOTE = """
        UsageContext.OPENAI_API_SERVER: 8192,
    }
    default_max_num_seqs = {
        UsageContext.LLM_CLASS: 1024,
        UsageContext.OPENAI_API_SERVER: 1024,
    }"""
_SMALL_QUOTE = """
        UsageContext.OPENAI_API_SERVER: 2048,
    }
    default_max_num_seqs = {
        UsageContext.LLM_CLASS: 256,
        UsageContext.OPENAI_API_SERVER: 256,
    }"""
_CPU_QUOTE = """
        UsageContext.OPENAI_API_SERVER: 2048 * world_size,
    }
    default_max_num_seqs = {
        UsageContext.LLM_CLASS: 256 * world_size,
        UsageContext.OPENAI_API_SERVER: 128 * world_size,
    }"""
_SCHEDULER = "vllm/config/scheduler.py"
_PARALLEL = "vllm/config/parallel.py"
_BATCHED_EXPERTS_QUOTE = """
    def use_batched_dp_moe(self) -> bool:
        return (
            self.all2all_backend
            in (
                "deepep_low_latency",
                "nixl_ep",
            )"""
_GB10_QUOTE = "is_gb10 = current_platform.is_device_capability((12, 1))"


def _facts(version: str, *, has_gb10_rule: bool, asks_draft_lookahead: bool) -> BatchFacts:
    gb10 = Sourced((12, 1), "compute capability", "vllm", version, ARG_UTILS, _GB10_QUOTE)
    return BatchFacts(
        large_memory_bytes=Sourced(
            Bytes(160 * GIB_BYTES), "bytes", "vllm", version, ARG_UTILS, "device_memory >= 160 * GiB_bytes"
        ),
        mid_memory_bytes=Sourced(
            Bytes(70 * GIB_BYTES), "bytes", "vllm", version, ARG_UTILS, "device_memory >= 70 * GiB_bytes"
        ),
        excluded_name=Sourced(
            "a100", "part of a lower-case name", "vllm", version, ARG_UTILS, '"a100" not in device_name'
        ),
        compute_poor_capability=gb10 if has_gb10_rule else None,
        large=Sourced(_pair(1024, 16384), "limits", "vllm", version, ARG_UTILS, _LARGE_QUOTE),
        mid=Sourced(_pair(1024, 8192), "limits", "vllm", version, ARG_UTILS, _MID_QUOTE),
        small=Sourced(_pair(256, 2048), "limits", "vllm", version, ARG_UTILS, _SMALL_QUOTE),
        cpu_per_rank=Sourced(_pair(128, 2048), "limits per rank", "vllm", version, ARG_UTILS, _CPU_QUOTE),
        batched_expert_tokens=Sourced(
            Tokens(256),
            "tokens",
            "vllm",
            version,
            _SCHEDULER,
            "DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP: ClassVar[int] = 256",
        ),
        batched_expert_backends=Sourced(
            ("deepep_low_latency", "nixl_ep"), "names", "vllm", version, _PARALLEL, _BATCHED_EXPERTS_QUOTE
        ),
        scheduled_tokens_warning_below=Sourced(
            Tokens(8192),
            "tokens",
            "vllm",
            version,
            "vllm/config/vllm.py",
            "if self.scheduler_config.max_num_scheduled_tokens < 8192:",
        ),
        asks_draft_lookahead=asks_draft_lookahead,
    )


BATCH_FACTS: Mapping[str, BatchFacts] = MappingProxyType(
    {
        "0.33.0": _facts("0.33.0", has_gb10_rule=True, asks_draft_lookahead=True),
        "0.32.0": _facts("0.32.0", has_gb10_rule=False, asks_draft_lookahead=False),
    }
)


def batch_tier(device: Device, world_size: int, version: str) -> BatchTier:
    """The API server's defaults before any other rule; ``world_size`` is pipeline times tensor ranks."""
    facts = BATCH_FACTS[version]
    if is_cpu(device):
        return _cpu_tier(facts.cpu_per_rank.value, world_size)
    return _gpu_tier(device, facts)


def _cpu_tier(per_rank: BatchDefaults, world_size: int) -> BatchTier:
    defaults = _pair(per_rank.max_num_seqs * world_size, per_rank.max_num_batched_tokens * world_size)
    return BatchTier(defaults=defaults, reason=f"the engine's CPU default for {world_size} rank(s)")


def _gpu_tier(device: Device, facts: BatchFacts) -> BatchTier:
    memory = device.total_memory_bytes
    if memory >= facts.large_memory_bytes.value:
        return BatchTier(defaults=facts.large.value, reason="the engine's default for GPUs of 160 GiB or more")
    if memory < facts.mid_memory_bytes.value:
        return BatchTier(defaults=facts.small.value, reason="the engine's default for GPUs below 70 GiB")
    if facts.excluded_name.value in device.device_name.lower():
        return BatchTier(defaults=facts.small.value, reason="the engine keeps the A100 at its smallest defaults")
    if _is_compute_poor(device, facts):
        return BatchTier(defaults=facts.small.value, reason="the engine keeps the GB10 at its smallest defaults")
    return BatchTier(defaults=facts.mid.value, reason="the engine's default for GPUs of 70 GiB to 160 GiB")


def _is_compute_poor(device: Device, facts: BatchFacts) -> bool:
    poor = facts.compute_poor_capability
    return poor is not None and device.compute_capability == poor.value
