"""The engine's own groups and blocks of a KV cache.

A program of its own::

    PYTHONPATH=ROOT python real_cache.py < cases.json > answers.json

Every case has ``length``, ``in_flight``, ``keeps_windows``, ``packs``, maybe ``retained`` tokens, and one of

- ``layers``: ``[kind, tokens of a block, bytes of a page, window or blocks of a state or null]`` each, from which the
  engine's specs are made;
- ``compressed``: sizes of DeepSeek V4, whose layers' own ``get_kv_cache_spec`` is asked;
- ``hybrid``: an architecture and its config, whose shape functions and whose platform's alignment are asked.

An answer is ``{"groups", "block_bytes", "request_blocks"}``, or ``{"refused": ...}``.  The engine gets a configuration
with what these functions read of it.
"""

import importlib
import json
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

_ELEMENT_BYTES = 2

_MODELS = {
    "Qwen3NextForCausalLM": "vllm.model_executor.models.qwen3_next",
    "OlmoHybridForCausalLM": "vllm.model_executor.models.olmo_hybrid",
    "KimiLinearForCausalLM": "vllm.models.kimi_k3.nvidia.model",
    "NemotronHForCausalLM": "vllm.model_executor.models.nemotron_h",
    "GraniteMoeHybridForCausalLM": "vllm.model_executor.models.granitemoehybrid",
    "FalconH1ForCausalLM": "vllm.model_executor.models.falcon_h1",
    "JambaForCausalLM": "vllm.model_executor.models.jamba",
    "Lfm2ForCausalLM": "vllm.model_executor.models.lfm2",
    "Lfm2MoeForCausalLM": "vllm.model_executor.models.lfm2_moe",
    "MambaForCausalLM": "vllm.model_executor.models.mamba",
    "Mamba2ForCausalLM": "vllm.model_executor.models.mamba2",
}


class _LayersOutermost:
    """The engine's default layout."""

    is_block_outermost = False


class _BlocksOutermost:
    is_block_outermost = True


def main() -> None:
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    json.dump([_answer(case) for case in json.load(sys.stdin)], stdout)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    config = _config(case)
    specs = {name: _retaining(spec, case.get("retained", 0)) for name, spec in _specs(case, config).items()}
    try:
        groups = _groups(config, specs)
    except (NotImplementedError, TypeError, ValueError, AssertionError, StopIteration) as error:
        return {"refused": str(error)}
    groups = _on_worker(groups, specs, case.get("workers"))
    blocks = [-(-g.kv_cache_spec.max_memory_usage_bytes(config) // g.kv_cache_spec.page_size_bytes) for g in groups]
    return {
        "groups": len(groups),
        "block_bytes": _planning()._pool_bytes_per_block(config, groups),
        "request_blocks": sum(blocks),
    }


def _planning() -> Any:
    """The engine's module that groups and sizes."""
    try:
        return importlib.import_module("vllm.v1.core.kv_cache_planning")
    except ImportError:  # before 0.33
        return importlib.import_module("vllm.v1.core.kv_cache_utils")


def _groups(config: Any, specs: dict[str, Any]) -> Any:
    groups = _planning().get_kv_cache_groups(config, dict(specs))
    assert {name for group in groups for name in group.layer_names} == specs.keys(), "layers are left out"
    return groups


def _retaining(spec: Any, tokens: int) -> Any:
    """A window that keeps so many tokens more, as the engine makes it before it groups."""
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    if not tokens or not isinstance(spec, SlidingWindowSpec):
        return spec
    return replace(spec, extra_retained_tokens=tokens)


def _on_worker(groups: Any, specs: dict[str, Any], workers: list[int] | None) -> Any:
    """The groups as the last worker holds them, where ``workers`` gives each layer's."""
    if not workers:
        return groups
    own = {name: spec for (name, spec), worker in zip(specs.items(), workers, strict=True) if worker == max(workers)}
    return _planning()._project_kv_cache_groups_to_worker(groups, own)


def _config(case: dict[str, Any]) -> Any:
    layout = _BlocksOutermost if case["packs"] else _LayersOutermost
    drafts = case.get("drafts", 0)
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=not case["keeps_windows"]),
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=SimpleNamespace(
            get_resolved_kv_cache_layout=layout,
            num_gpu_blocks_override=None,
            cache_dtype=case.get("cache_dtype", "auto"),
            block_size=case.get("block", 16),
            mamba_cache_mode=case.get("mode", "none"),
            mamba_cache_dtype="auto",
            mamba_ssm_cache_dtype=case.get("recurrent", "auto"),
            mamba_block_size=None,
            mamba_page_size_padded=None,
            kv_cache_dtype_skip_layers=[],
            use_replayssm=False,
        ),
        model_config=SimpleNamespace(max_model_len=case["length"]),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            tensor_parallel_size=case.get("ranks", 1),
        ),
        speculative_config=SimpleNamespace(num_speculative_tokens=drafts) if drafts else None,
        num_speculative_tokens=drafts,
        max_in_flight_tokens=case["in_flight"],
    )


def _specs(case: dict[str, Any], config: Any) -> dict[str, Any]:
    if "layers" in case:
        found = [_spec(layer) for layer in case["layers"]]
    elif "compressed" in case:
        found = list(_compressed(case["compressed"], config))
    else:
        found = list(_hybrid(case, config))
    return {f"layer.{index}": spec for index, spec in enumerate(found)}


def _spec(layer: list[Any]) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        MambaSpec,
        MLAAttentionSpec,
        SlidingWindowMLASpec,
        SlidingWindowSpec,
    )

    kind, block_tokens, page_bytes, more = layer
    if kind == "state":
        return MambaSpec(
            block_size=block_tokens,
            shapes=((page_bytes // _ELEMENT_BYTES,),),
            dtypes=(torch.bfloat16,),
            num_speculative_blocks=more - 1,
        )
    vectors = 1 if kind.startswith("latent") else 2
    sizes: dict[str, Any] = {
        "block_size": block_tokens,
        "num_kv_heads": 1,
        "head_size": page_bytes // (vectors * block_tokens * _ELEMENT_BYTES),
        "dtype": torch.bfloat16,
    }
    windows = {"window": SlidingWindowSpec, "latent window": SlidingWindowMLASpec}
    if kind in windows:
        return windows[kind](**sizes, sliding_window=more)
    return (MLAAttentionSpec if kind == "latent" else FullAttentionSpec)(**sizes)


# DeepSeek V4


def _compressed(sizes: dict[str, Any], config: Any) -> Any:
    """Every layer's specs, by methods of the engine's layers on stand-ins with the fields that they read."""
    import torch
    from vllm.models.deepseek_v4.attention import DeepseekV4Attention, DeepseekV4IndexerCache

    config.cache_config.cache_dtype = "fp8_ds_mla"
    index_bytes = sizes["index"] // 2 + sizes["index"] // 32 if sizes["four_bits"] else sizes["index"] + 4
    for ratio in sizes["ratios"]:
        if ratio == 4:
            index = SimpleNamespace(
                cache_config=config.cache_config, head_dim=index_bytes, dtype=torch.uint8, compress_ratio=ratio
            )
            yield DeepseekV4IndexerCache.get_kv_cache_spec(index, config)
            yield _partial_state(ratio, sizes["index"], config)
        yield _window(sizes, config)
        attention = SimpleNamespace(
            compress_ratio=max(1, ratio),
            kv_cache_dtype="fp8_ds_mla",
            kv_cache_torch_dtype=torch.uint8,
            head_dim=sizes["head"],
        )
        spec = DeepseekV4Attention.get_kv_cache_spec(attention, config)
        if spec is not None:
            yield spec
            yield _partial_state(ratio, sizes["head"], config)
    for _ in range(sizes["drafter_layers"]):
        yield _window(sizes, config)


def _window(sizes: dict[str, Any], config: Any) -> Any:
    import inspect

    import torch
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekV4SWACache

    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(DeepseekV4SWACache.__init__).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    own = {**defaults, "cache_config": config.cache_config, "head_dim": sizes["head"], "dtype": torch.uint8}
    return DeepseekV4SWACache.get_kv_cache_spec(SimpleNamespace(**own, window_size=sizes["window"]), config)


def _partial_state(ratio: int, width: int, config: Any) -> Any:
    """The engine's own constructor, which computes blocks and window, without its registration."""
    import torch
    from vllm.models.deepseek_v4 import compressor

    context = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context={}))
    with patch.object(compressor, "get_current_vllm_config", lambda: context):
        overlap = ratio == 4
        cache = compressor.CompressorStateCache(
            state_dim=2 * (1 + overlap) * width, dtype=torch.float32, compress_ratio=ratio, prefix="state"
        )
    return cache.get_kv_cache_spec(config)


# Hybrids


def _hybrid(case: dict[str, Any], config: Any) -> Any:
    """The shapes of the engine's model class, aligned by the engine's platform, as its base layer makes specs."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec

    sizes = case["hybrid"]
    model = getattr(importlib.import_module(_MODELS[sizes["architecture"]]), sizes["architecture"])
    hf_config = SimpleNamespace(**sizes["config"])
    config.model_config = SimpleNamespace(
        max_model_len=case["length"],
        hf_config=hf_config,
        hf_text_config=hf_config,
        dtype=torch.bfloat16,
        use_mla=sizes["latent"],
        architecture=sizes["architecture"],
        get_num_kv_heads=lambda _: sizes["kv_heads"],
        get_head_size=lambda: sizes["head"],
    )
    config.mamba_config = SimpleNamespace(backend=None)
    if sizes["architecture"] == "NemotronHForCausalLM":
        from vllm.model_executor.models.config import NemotronHForCausalLMConfig

        NemotronHForCausalLMConfig.verify_and_update_config(config)
    config.cache_config.mamba_block_size = config.cache_config.block_size if case["mode"] == "align" else case["length"]
    if sizes["attends"]:
        _align(model, config, sizes["checkpoint_tokens"])
    state = MambaSpec(
        block_size=config.cache_config.mamba_block_size,
        shapes=tuple(model.get_mamba_state_shape_from_config(config)),
        dtypes=model.get_mamba_state_dtype_from_config(config),
        page_size_padded=config.cache_config.mamba_page_size_padded,
        mamba_cache_mode=case["mode"],
        num_speculative_blocks=config.num_speculative_tokens,
        num_prefill_checkpoint_blocks=sizes["checkpoints"],
    )
    attention = {
        "block_size": config.cache_config.block_size,
        "num_kv_heads": sizes["kv_heads"],
        "head_size": sizes["head"],
        "dtype": torch.bfloat16,
    }
    own = MLAAttentionSpec(**attention) if sizes["latent"] else FullAttentionSpec(**attention)
    for attends, recurs in sizes["kinds"]:
        if attends:
            yield own
        if recurs:
            yield state


def _align(model: Any, config: Any, checkpoint_tokens: int | None) -> None:
    from vllm.model_executor.layers.mamba import abstract
    from vllm.model_executor.models import ModelRegistry
    from vllm.platforms.interface import Platform
    from vllm.v1.attention.backend import MultipleOf

    class Backend:
        """Takes any multiple of 16, and packs nothing."""

        get_supported_kernel_block_sizes = staticmethod(lambda: [MultipleOf(16)])
        customize_spec = staticmethod(lambda spec: spec)

    with (
        patch.object(ModelRegistry, "resolve_model_cls", lambda *_, **__: (model, None)),
        patch.object(Platform, "_find_non_ssm_backends", classmethod(lambda *_: [Backend])),
        patch.object(abstract, "get_mamba_prefill_checkpoint_alignment", lambda _: checkpoint_tokens),
        patch("vllm.config.vllm.set_current_vllm_config", _Nothing),
    ):
        Platform._align_hybrid_block_size(config, Backend)


class _Nothing:
    """A context that sets nothing."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


if __name__ == "__main__":
    main()
