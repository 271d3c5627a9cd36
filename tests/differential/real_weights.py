"""The engine's own parameters of a model, counted without memory for them.

A program of its own::

    PYTHONPATH=ROOT python real_weights.py < cases.json > answers.json

A case is a config.json; an answer is ``{"bytes": ...}`` of all parameters of the engine's model class on one rank,
made on a device that stores nothing, or ``{"not_made": ...}`` where this build of the engine cannot make it.
"""

import json
import sys
import tempfile
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


def _answer(config: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            return {"bytes": _parameter_bytes(folder)}
        except Exception as error:  # whatever a build lacks: kernels, libraries, platforms
            return {"not_made": f"{type(error).__name__}: {error}"}


def _parameter_bytes(folder: str) -> int:
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model

    asked = EngineArgs(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        enable_prefix_caching=True,
    )
    config = asked.create_engine_config()
    torch.set_default_dtype(torch.bfloat16)
    with set_current_vllm_config(config):
        _one_rank()
        with torch.device("meta"):
            model = initialize_model(config)
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def _one_rank() -> None:
    """A group of this process alone, made anew, as some groups depend on the model."""
    import torch
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.distributed.parallel_state import destroy_model_parallel

    if not torch.distributed.is_initialized():
        with tempfile.NamedTemporaryFile() as meeting:
            init_distributed_environment(1, 0, f"file://{meeting.name}-meeting", 0, "gloo")
    destroy_model_parallel()
    initialize_model_parallel(1, 1)


if __name__ == "__main__":
    main()
