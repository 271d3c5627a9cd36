"""The engine's whole config resolution, ``EngineArgs.create_engine_config``, on a machine without a GPU.

A program of its own, one process a machine::

    PYTHONPATH=ROOT python real_config.py < requests.json > answers.json

The request is ``{"capability", "name", "memory_bytes", "usage", "cases"}``; a case is ``{"model": CONFIG,
"draft": CONFIG or null, "args": {...}}``, where CONFIG is what stands in a model's config.json and ``args``
are fields of ``EngineArgs``.  The draft's folder is filled in as ``model`` of ``args["speculative_config"]``.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import fake_cuda  # type: ignore[import-not-found]  # a sibling: this file is run as a program

_BREAKABLE = "VLLM_USE_BREAKABLE_CUDAGRAPH"


def main() -> None:
    request = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    capability = (request["capability"][0], request["capability"][1])
    fake_cuda.install(capability, request["name"], request["memory_bytes"])
    with tempfile.TemporaryDirectory() as folder:
        answers = [_answer(Path(folder) / str(i), case, request["usage"]) for i, case in enumerate(request["cases"])]
    json.dump({"answers": answers, "file": _file()}, stdout)


def _answer(folder: Path, case: dict[str, Any], usage: str) -> dict[str, Any]:
    arguments = dict(case["args"])
    if case["draft"] is not None:
        draft = _model_folder(folder / "draft", case["draft"])
        arguments["speculative_config"] = {**arguments["speculative_config"], "model": draft}
    os.environ.pop(_BREAKABLE, None)  # the engine sets it for some models, and a process is many cases
    try:
        return _resolved(_model_folder(folder / "model", case["model"]), arguments, usage)
    except (ValueError, AssertionError) as error:
        return {"refusal": type(error).__name__, "message": str(error)}


def _resolved(model: str, arguments: dict[str, Any], usage: str) -> dict[str, Any]:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    written = EngineArgs(model=model, skip_tokenizer_init=True, load_format="dummy", **arguments)
    config = written.create_engine_config(UsageContext[usage])
    compiled, scheduler = config.compilation_config, config.scheduler_config
    return {
        "cudagraph_mode": compiled.cudagraph_mode.name,
        "capture_sizes": list(compiled.cudagraph_capture_sizes),
        "max_capture_size": compiled.max_cudagraph_capture_size,
        "compilation_mode": int(compiled.mode),
        "splitting_ops_contain_attention": compiled.splitting_ops_contain_attention(),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_active_seqs": scheduler.max_num_active_seqs,
        "uniform_decode_query_len": config.uniform_decode_query_len,
        "breakable_graphs": os.environ.get(_BREAKABLE) == "1",
        "v2_model_runner": config.use_v2_model_runner,
    }


def _model_folder(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def _file() -> str:
    import vllm.engine.arg_utils

    return os.path.realpath(str(vllm.engine.arg_utils.__file__))


if __name__ == "__main__":
    main()
