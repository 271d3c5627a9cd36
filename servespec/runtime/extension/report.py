"""What a worker really captured, from the engine's graphs and wrappers, as a file of its own.

FULL graphs are those that the managers hold.  PIECEWISE graphs live in a wrapper for every piece of a compiled model;
wrappers are listed by the sizes that they hold, which is one list for each model unless something was missed.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from servespec.runtime.extension.capture_memory import CapturedGraph
from servespec.runtime.extension.split_rule import split_rule_tokens
from servespec.runtime.extension.worker_memory import memory_json
from servespec.runtime.private_file import write_private

FOLDER_VARIABLE: Final = "SERVESPEC_RECORD_FOLDER"
"""Where each worker leaves its report; a variable, because the engine's settings are the key of its compile cache."""
_CAPTURED: Final = "captured"
_LEFT: Final = "left"
_ASK: Final = "ask"
ASK_PIPES: Final = f"{_ASK}-*-*"
"""A pattern of every worker's :func:`ask_name`."""

_LEAVING: Final = Lock()
"""A worker may come to its end while it answers, and both write the same file."""


def report_name(data_parallel_rank: int, rank: int) -> str:
    return f"{_CAPTURED}-{data_parallel_rank}-{rank}.json"


def left_name(data_parallel_rank: int, rank: int) -> str:
    """Of the report that is made when the worker ends."""
    return f"{_LEFT}-{data_parallel_rank}-{rank}.json"


def ask_name(data_parallel_rank: int, rank: int) -> str:
    """Of the pipe through which a worker is asked for that report while it runs."""
    return f"{_ASK}-{data_parallel_rank}-{rank}"


def left_beside(report: Path) -> Path:
    """Where the worker that wrote ``report`` of its captures leaves the one of its end."""
    return report.with_name(_LEFT + report.name.removeprefix(_CAPTURED))


def ask_beside(report: Path) -> Path:
    """The pipe of the worker that wrote ``report`` of its captures."""
    return report.with_name(_ASK + report.stem.removeprefix(_CAPTURED))


class Took(NamedTuple):
    """What one capture of all graphs took, and each of them; ``graph_bytes`` is the engine's own figure."""

    seconds: float
    graph_bytes: int
    graphs: tuple[CapturedGraph, ...]


def write_report(worker: Any, sha256: str, took: Took, remedies: Mapping[str, int]) -> None:
    """Leaves this worker's report of what it captured, and of how often each remedy in force did its work."""
    content = {
        "sha256": sha256,
        "capture_seconds": round(took.seconds, 3),
        "graph_bytes": took.graph_bytes,
        "split_rule_tokens": split_rule_tokens(worker.model_runner),
        "remedies": remedies,
        "memory": memory_json(worker),
        "captures": _captures_json(took.graphs),
    }
    leave(worker, report_name, {**content, **entries_of(worker.model_runner)})


def write_left(worker: Any) -> None:
    """Leaves what the worker holds at its end; nothing where it has reported no capture.

    It reads and copies alone, as it is called beside a main thread that may be in the middle of a step.
    """
    path = own_path(worker, report_name)
    if path is not None and path.is_file():
        switch = getattr(worker.model_runner, "servespec_load_switch", None)
        verification = None if switch is None else switch.counts()
        with _LEAVING:
            leave(worker, left_name, {"verification": verification, **entries_of(worker.model_runner)})


def leave(worker: Any, name: Callable[[int, int], str], content: Mapping[str, Any]) -> None:
    """A file of this worker's in the folder of the variable, whole or not at all; nothing where it names none."""
    path = own_path(worker, name)
    if path is not None:
        write_private(path, json.dumps({"format": 1, **content}, indent=1) + "\n")


def own_path(worker: Any, name: Callable[[int, int], str]) -> Path | None:
    """By the data-parallel index, as every rank of a dense model has data-parallel rank 0."""
    folder = os.environ.get(FOLDER_VARIABLE)
    index = worker.vllm_config.parallel_config.data_parallel_index
    return Path(folder) / name(index, worker.rank) if folder else None


def entries_of(runner: Any) -> dict[str, Any]:
    """Every graph that the runner's managers and the compiled pieces hold now."""
    return {
        "managers": [_manager_json(one) for one in managers_of_runner(runner)],
        "compiled_pieces": _compiled_pieces(),
    }


def managers_of_runner(runner: Any) -> Iterator[Any]:
    """The target's manager, then the drafter's, as the engine itself looks for them."""
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    yield runner.cudagraph_manager
    speculator = getattr(runner, "speculator", None)
    for value in list(vars(speculator).values()) if speculator is not None else ():
        if isinstance(value, CudaGraphManager):
            yield value


def _manager_json(manager: Any) -> dict[str, Any]:
    breakable = manager.breakable_cg_runner
    return {
        "class": type(manager).__name__,
        "query_len": manager.decode_query_len,
        "mode": manager.cudagraph_mode.name,
        "full": sorted(graph_json(descriptor) for descriptor in list(manager.graphs)),
        "breakable": None if breakable is None else sorted(_sizes(breakable.entries)),
    }


def _captures_json(graphs: Iterable[CapturedGraph]) -> list[dict[str, Any]]:
    """By manager and mode, in the order of capture."""
    by_kind: dict[tuple[int, str], list[CapturedGraph]] = {}
    for one in graphs:
        by_kind.setdefault((id(one.manager), one.descriptor.cg_mode.name), []).append(one)
    return [
        {
            "class": type(own[0].manager).__name__,
            "query_len": own[0].manager.decode_query_len,
            "mode": mode,
            "graphs": [_captured_json(one) for one in own],
        }
        for (_, mode), own in by_kind.items()
    ]


def _captured_json(one: CapturedGraph) -> dict[str, Any]:
    return {
        "graph": graph_json(one.descriptor),
        "pool_bytes": one.pool_bytes,
        "device_bytes": one.device_bytes,
        "seconds": round(one.seconds, 4),
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
        held = [one for one, entry in list(entries.items()) if entry.cudagraph is not None]
        by_sizes[tuple(sorted((one.num_tokens, one.num_active_loras) for one in held))] += 1
    return [{"pieces": count, "sizes": [list(one) for one in sizes]} for sizes, count in sorted(by_sizes.items())]


def _sizes(entries: Any) -> set[int]:
    """A key is a batch descriptor, or one with the module that it runs, of a drafter with several."""
    return {(key[0] if isinstance(key, tuple) else key).num_tokens for key in list(entries)}
