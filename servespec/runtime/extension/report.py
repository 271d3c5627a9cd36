"""What a worker really captured, from the engine's graphs and wrappers, as a file of its own.

FULL graphs are those that the managers hold.  PIECEWISE graphs live in a wrapper for every piece of a compiled model;
wrappers are listed by the sizes that they hold, which is one list for each model unless something was missed.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FOLDER_VARIABLE: Final = "SERVESPEC_RECORD_FOLDER"
"""Where each worker leaves its report; a variable, because the engine's settings are the key of its compile cache."""


def report_name(data_parallel_rank: int, rank: int) -> str:
    return f"captured-{data_parallel_rank}-{rank}.json"


def write_report(worker: Any, sha256: str, seconds: float, graph_bytes: int) -> None:
    """Leaves this worker's report in the folder of the variable; nothing where it names none."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    parallel = worker.vllm_config.parallel_config
    path = Path(folder) / report_name(parallel.data_parallel_rank, worker.rank)
    report = report_of(worker.model_runner, sha256, seconds, graph_bytes)
    write_private(path, json.dumps(report, indent=1) + "\n")


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner alone."""
    written = path.with_suffix(".part")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    written.rename(path)


def report_of(runner: Any, sha256: str, seconds: float, graph_bytes: int) -> dict[str, Any]:
    managers = list(managers_of_runner(runner))
    return {
        "format": 1,
        "sha256": sha256,
        "capture_seconds": round(seconds, 3),
        "graph_bytes": graph_bytes,
        "managers": [_manager_json(manager) for manager in managers],
        "compiled_pieces": _compiled_pieces(),
    }


def managers_of_runner(runner: Any) -> Iterator[Any]:
    """The target's manager, then the drafter's, as the engine itself looks for them."""
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    yield runner.cudagraph_manager
    speculator = getattr(runner, "speculator", None)
    for value in vars(speculator).values() if speculator is not None else ():
        if isinstance(value, CudaGraphManager):
            yield value


def _manager_json(manager: Any) -> dict[str, Any]:
    breakable = manager.breakable_cg_runner
    return {
        "class": type(manager).__name__,
        "query_len": manager.decode_query_len,
        "mode": manager.cudagraph_mode.name,
        "full": sorted(graph_json(descriptor) for descriptor in manager.graphs),
        "breakable": None if breakable is None else sorted(_sizes(breakable.entries)),
    }


def graph_json(descriptor: Any) -> list[int]:
    """Tokens, requests, query length, longest query, LoRA case, microbatches, K; 0 where there is none."""
    return [
        descriptor.num_tokens,
        descriptor.num_reqs or 0,
        descriptor.uniform_token_count or 0,
        descriptor.max_query_len or 0,
        descriptor.num_active_loras,
        descriptor.num_ubatches or 1,
        getattr(descriptor, "num_speculative_tokens", 0),
    ]


def _compiled_pieces() -> list[dict[str, Any]]:
    from vllm.compilation.cuda_graph import CUDAGraphWrapper

    by_sizes: Counter[tuple[tuple[int, int], ...]] = Counter()
    for wrapper in list(CUDAGraphWrapper._all_instances):
        entries = wrapper.concrete_cudagraph_entries
        held = [one for one, entry in entries.items() if entry.cudagraph is not None]
        by_sizes[tuple(sorted((one.num_tokens, one.num_active_loras) for one in held))] += 1
    return [{"pieces": count, "sizes": [list(one) for one in sizes]} for sizes, count in sorted(by_sizes.items())]


def _sizes(entries: Any) -> set[int]:
    """A key is a batch descriptor, or one with the module that it runs, of a drafter with several."""
    return {(key[0] if isinstance(key, tuple) else key).num_tokens for key in entries}
