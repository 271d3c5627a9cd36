"""The engine's own parameters of a model, counted without memory for them.

A program of its own::

    PYTHONPATH=ROOT python real_weights.py < cases.json > answers.json

A case is ``{"config": ..., "ranks": ...}``, a config.json and how many ranks share each layer; an answer is
``{"bytes": ..., "caches": ...}``, all parameters of the engine's model class on one of them, made on a device that
stores nothing, and the sorted caches of its layers: ``[bytes of a token, tokens of the window or 0]`` each, of a
recurrent layer none.  With a ``draft``, the config.json of an EAGLE3 head, ``bytes`` are the head's without its
vocabulary, and there are no caches.  It is ``{"not_made": ...}`` where this build of the engine cannot make it.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class _Nothing:
    """An event or a stream of a GPU, which this build only names."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


def main() -> None:
    import torch

    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    torch.cuda.Event = torch.cuda.Stream = _Nothing  # type: ignore[misc, assignment]
    json.dump([_answer(case) for case in json.load(sys.stdin)], stdout)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config", "draft"):
            Path(folder, name).mkdir()
            Path(folder, name, "config.json").write_text(json.dumps(case.get(name)), encoding="utf-8")
        try:
            return _stored(folder, case["ranks"], has_draft="draft" in case)
        except Exception as error:  # whatever a build lacks: kernels, libraries, platforms
            return {"not_made": f"{type(error).__name__}: {error}"}


def _stored(folder: str, ranks: int, *, has_draft: bool) -> dict[str, Any]:
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model

    drafting = {"method": "eagle3", "model": f"{folder}/draft", "num_speculative_tokens": 3}
    asked = EngineArgs(
        model=f"{folder}/config",
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        enable_prefix_caching=True,
        speculative_config=drafting if has_draft else None,
    )
    config = asked.create_engine_config()
    # Set late, so that nothing asks for as many devices.
    config.parallel_config.tensor_parallel_size = config.parallel_config.world_size = ranks
    torch.set_default_dtype(torch.bfloat16)
    with set_current_vllm_config(config):
        _first_rank(ranks)
        with torch.device("meta"):
            if has_draft:
                head = initialize_model(config, model_config=config.speculative_config.draft_model_config)
                return {"bytes": _bytes(head, ("embed_tokens", "lm_head"))}
            model = initialize_model(config)
        return {"bytes": _bytes(model), "caches": sorted(_caches(config))}


def _bytes(model: Any, without: tuple[str, ...] = ()) -> int:
    named = ((name, one) for name, one in model.named_parameters() if not any(part in name for part in without))
    return sum(parameter.numel() * parameter.element_size() for _, parameter in named)


def _caches(config: Any) -> Iterator[list[int]]:
    from vllm.v1.kv_cache_interface import MambaSpec

    for layer in config.compilation_config.static_forward_context.values():
        spec = layer.get_kv_cache_spec(config) if hasattr(layer, "get_kv_cache_spec") else None
        if spec is not None and not isinstance(spec, MambaSpec):
            yield [spec.page_size_bytes // spec.block_size, getattr(spec, "sliding_window", None) or 0]


def _first_rank(ranks: int) -> None:
    """A group of this process alone, made anew, as some groups depend on the model; it says that it has so many."""
    import torch
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.distributed.parallel_state import destroy_model_parallel, get_tp_group

    if not torch.distributed.is_initialized():
        with tempfile.NamedTemporaryFile() as meeting:
            init_distributed_environment(1, 0, f"file://{meeting.name}-meeting", 0, "gloo")
    destroy_model_parallel()
    initialize_model_parallel(1, 1)
    get_tp_group().world_size = ranks


if __name__ == "__main__":
    main()
