"""Keeps the allocator's history of a worker's profile run and of its first captures, where a variable names a folder.

Python imports this by its name where the folder is on its path; `benchmarks/memory_trace.py` puts it there.
"""

import gzip
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("SERVESPEC_ALLOCATOR_HISTORY")
MODE = "PIECEWISE"
"""Of each manager the first graph of this mode: the widest, for which its pool grows."""
FRAMES = 5


def _where(frames: Sequence[dict[str, Any]]) -> list[str]:
    """The engine's and the compiled code's frames; torch's own say little."""
    own = [
        f"{frame['filename'][-60:]}:{frame['line']}:{frame['name']}"
        for frame in frames
        if "torch/" not in frame["filename"] or "inductor" in frame["filename"] or "torch_compile" in frame["filename"]
    ]
    return [one for one in own if "sitecustomize" not in one and not one.startswith("<")][:FRAMES]


def begin() -> None:
    import torch

    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=400_000)


def end(name: str) -> None:
    import torch

    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    places, events = dict[tuple[str, ...], int](), list[list[Any]]()
    for event in snapshot["device_traces"][0]:
        place = places.setdefault(tuple(_where(event.get("frames", []))), len(places))
        events.append([event["action"], event.get("size"), event.get("addr"), event.get("stream"), place])
    segments = [
        {"bytes": one["total_size"], "stream": one["stream"], "pool": one.get("segment_pool_id")}
        for one in snapshot["segments"]
    ]
    folder = Path(str(FOLDER))
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / f"{name}.json.gz", "wt") as file:
        json.dump({"events": events, "frames": list(places), "segments": segments}, file)


def _watch_runner(module: Any) -> None:
    runner, runs = module.GPUModelRunner, list[None]()
    engines_profile, engines_capture = runner.profile_run, runner.capture_model

    def profile_run(self: Any, *given: Any, **named: Any) -> Any:
        runs.append(None)
        begin()
        try:
            return engines_profile(self, *given, **named)
        finally:
            end(f"profile-{len(runs)}")

    def capture_model(self: Any, *given: Any, **named: Any) -> Any:
        STATE["keeps"] = not named.get("profile_only", False)
        return engines_capture(self, *given, **named)

    runner.profile_run, runner.capture_model = profile_run, capture_model


STATE = {"keeps": False}


def _watch_captures(module: Any) -> None:
    manager, engines_capture = module.CudaGraphManager, module.CudaGraphManager.capture

    def capture(self: Any, create_forward_fn: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if not STATE["keeps"]:
            return engines_capture(self, create_forward_fn, *given, **named)
        waiting, recorded = [f"{type(self).__name__}-{MODE}"], list[str]()

        def counted(descriptor: Any, *rest: Any, **further: Any) -> Any:
            if further.get("warmup", True):
                if recorded:
                    end(recorded.pop())
                elif waiting and descriptor.cg_mode.name == MODE:
                    recorded.append(waiting.pop())
                    begin()
            return create_forward_fn(descriptor, *rest, **further)

        try:
            return engines_capture(self, counted, *given, **named)
        finally:
            if recorded:
                end(recorded.pop())

    manager.capture = capture


_WATCHED = {
    "vllm.v1.worker.gpu.model_runner": _watch_runner,
    "vllm.v1.worker.gpu.cudagraph_utils": _watch_captures,
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, _target: Any = None) -> Any:
        if name not in _WATCHED:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path)
        engines_exec = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            engines_exec(module)
            _WATCHED[name](module)

        spec.loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.meta_path.insert(0, _Finder())
