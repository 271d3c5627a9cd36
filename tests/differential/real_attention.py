"""The engine's own choice of attention backend, on a machine without a GPU.

A program of its own, one process a machine::

    PYTHONPATH=ROOT python real_attention.py < request.json > answers.json

The request is ``{"capability", "name", "memory_bytes", "flashinfer", "trtllm", "needs"}``; needs are the fields of
servespec's ``AttentionNeeds``.  Packages that are not installed are pretended where the request says so: the engine
asks only whether they can be imported.
"""

import importlib.machinery
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_cuda  # a sibling: this file is run as a program

_FLASHINFER = ("", ".decode", ".prefill", ".utils", ".mla", ".mla._core", ".sparse", ".comm", ".autotuner")


class _Pretended(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else lambda *_, **__: None


def main() -> None:
    request = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    capability = (request["capability"][0], request["capability"][1])
    fake_cuda.install(capability, request["name"], request["memory_bytes"])
    _install_kernels(capability, request["flashinfer"], request["trtllm"])
    answers = [_answer(SimpleNamespace(**needs)) for needs in request["needs"]]
    json.dump({"answers": answers, "file": _file()}, stdout)


def _install_kernels(capability: tuple[int, int], flashinfer: bool, trtllm: bool) -> None:
    _flash_attention(capability[0])
    if flashinfer:
        for part in _FLASHINFER:
            _pretend(f"flashinfer{part}")
    _pretend("tokenspeed_mla")
    _patch("vllm.utils.flashinfer", has_nvidia_artifactory=lambda: trtllm)
    for name in ("has_flashinfer", "has_flashinfer_sparse_mla_sm120", "has_flashinfer_sm90_nope_mla"):
        _patch("vllm.utils.flashinfer", **{name: lambda: flashinfer})
    _patch("vllm.utils.deep_gemm", has_deep_gemm=lambda: True)
    _patch("vllm.v1.attention.ops.flashmla", _is_flashmla_available=lambda: (True, None))
    _patch("vllm.v1.attention.backends.mla.indexer", has_deep_gemm=lambda: True)
    sparse = "vllm.v1.attention.backends.mla.flashattn_mla_sparse"
    _patch(sparse, _fa4_cute_mla_available=lambda: None if capability[0] in (9, 10, 11) else "unsupported")
    _without_devices()


def _flash_attention(major: int) -> None:
    """As built for every capability; source: vllm_flash_attn/flash_attn_interface.py, is_fa_version_supported."""
    built = {2: major >= 8, 3: major == 9, 4: major in (9, 10, 11)}
    interface: Any = sys.modules["vllm.vllm_flash_attn.flash_attn_interface"]
    interface.is_fa_version_supported = built.__getitem__


def _pretend(name: str) -> None:
    module = _Pretended(name)
    module.__path__ = []
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module


def _patch(module: str, **values: Any) -> None:
    for name, value in values.items():
        setattr(importlib.import_module(module), name, value)


def _without_devices() -> None:
    """One backend allocates its workspace when its module is imported."""
    import torch

    empty: Any = torch.empty

    def on_the_cpu(*sizes: Any, **options: Any) -> Any:
        return empty(*sizes, **{**options, "device": "cpu"})

    torch.empty = on_the_cpu  # type: ignore[assignment]


def _answer(needs: SimpleNamespace) -> dict[str, Any]:
    import vllm.config.vllm
    import vllm.platforms

    config = _config(needs)
    vllm.config.vllm._current_vllm_config = config
    platform = vllm.platforms._current_platform
    valid, _ = platform.get_valid_backends(platform.get_device_capability(), _selector(needs), needs.num_heads_per_rank)
    if not valid:
        return {"backend": None}
    builder = valid[0].backend.get_class().get_builder_cls()
    spec = _cache_spec(needs)
    return {
        "backend": valid[0].backend.name,
        "support": builder.get_cudagraph_support(config, spec).name,
        "varlen": builder.get_varlen_cudagraph_max_query_len(config, spec),
        "indexer": _indexer(config) if needs.use_mla and needs.use_sparse else None,
    }


def _indexer(config: SimpleNamespace) -> str:
    from vllm.v1.attention.backends.mla.indexer import DeepseekV32IndexerMetadataBuilder

    return str(DeepseekV32IndexerMetadataBuilder.get_cudagraph_support(config, None).name)


def _dtype(needs: SimpleNamespace) -> Any:
    import torch

    return getattr(torch, needs.dtype)


def _selector(needs: SimpleNamespace) -> Any:
    from vllm.v1.attention.selector import AttentionSelectorConfig

    return AttentionSelectorConfig(
        head_size=needs.head_size,
        dtype=_dtype(needs),
        kv_cache_dtype=needs.kv_cache_dtype,
        block_size=needs.block_size_tokens,
        use_mla=needs.use_mla,
        has_sink=needs.has_sink,
        use_sparse=needs.use_sparse,
        use_mm_prefix=needs.is_mm_prefix,
        has_sliding_window=needs.has_sliding_window,
        use_non_causal=needs.is_non_causal,
        use_pcp=needs.prefill_context_parallel_size > 1,
        use_adaptive_verification=needs.enable_adaptive_verification,
        use_dcp=needs.decode_context_parallel_size > 1,
    )


def _cache_spec(needs: SimpleNamespace) -> Any:
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, get_kv_quant_mode

    spec = MLAAttentionSpec if needs.use_mla else FullAttentionSpec
    return spec(
        block_size=64,
        num_kv_heads=needs.num_kv_heads_per_rank,
        head_size=needs.head_size,
        dtype=_dtype(needs),
        kv_quant_mode=get_kv_quant_mode(needs.kv_cache_dtype),
    )


def _config(needs: SimpleNamespace) -> SimpleNamespace:
    drafts = needs.query_len_tokens_per_request - 1
    speculative = SimpleNamespace(
        num_speculative_tokens=drafts,
        enable_adaptive_verification=needs.enable_adaptive_verification,
        parallel_drafting=False,
    )
    return SimpleNamespace(
        attention_config=SimpleNamespace(
            use_trtllm_attention=needs.use_trtllm_attention,
            flash_attn_version=None,
            use_non_causal=needs.is_non_causal,
            hisparse_config=None,
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=needs.decode_context_parallel_size,
            prefill_context_parallel_size=needs.prefill_context_parallel_size,
            tensor_parallel_size=1,
        ),
        model_config=_model(needs),
        cache_config=SimpleNamespace(cache_dtype=needs.kv_cache_dtype, block_size=64, use_replayssm=False),
        speculative_config=speculative if drafts else None,
        num_speculative_tokens=drafts,
        use_v2_model_runner=True,
        compilation_config=SimpleNamespace(static_forward_context={}),
    )


def _model(needs: SimpleNamespace) -> SimpleNamespace:
    names = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank", "index_topk")
    written = {name: getattr(needs, name) for name in names if getattr(needs, name) is not None}
    text = SimpleNamespace(**written, attn_logit_softcapping=30.0 if needs.has_logits_softcap else None)
    return SimpleNamespace(
        get_num_attention_heads=lambda _: needs.num_heads_per_rank,
        get_num_kv_heads=lambda _: needs.num_kv_heads_per_rank,
        get_head_size=lambda: needs.head_size,
        hf_text_config=text,
        hf_config=text,
        is_diffusion=False,
        is_mm_prefix_lm=needs.is_mm_prefix,
        rswa_window=None,
        dtype=_dtype(needs),
    )


def _file() -> str:
    import vllm.platforms.cuda

    return str(vllm.platforms.cuda.__file__)


if __name__ == "__main__":
    main()
