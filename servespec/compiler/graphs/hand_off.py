"""What the engine's workers are handed: the graphs of each of their graph managers, as JSON with a digest of itself.

A worker finds the entry of a manager by the manager's class and query length.  LoRA cases and microbatch twins are the
engine's own to multiply by, so that an entry lists each size once.
Source: vllm/v1/worker/gpu/model_runner.py: initialize_kv_cache; every init_cudagraph_manager under
vllm/v1/worker/gpu/spec_decode/.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.managers import DrafterKind, GraphFrame, Manager, managers_of, own_shapes
from servespec.compiler.graphs.shape import Runner, Shape

FORMAT: Final = 1
HAND_OFF_KEY: Final = "servespec"
"""Under this key of the engine's additional config its workers find the graphs."""

LOAD_AWARE_KEY: Final = "load_aware"
"""[requests from which on a step chooses its drafts, requests below which it verifies all again]"""

TARGET_CLASS: Final = "ModelCudaGraphManager"
DRAFTER_CLASSES: Final[Mapping[DrafterKind, str]] = {
    DrafterKind.AUTOREGRESSIVE: "SpeculatorCudaGraphManager",
    DrafterKind.MULTI_MODULE_MTP: "SpeculatorCudaGraphManager",
    DrafterKind.BLOCK: "DFlashCudaGraphManager",
}


class Remedy(StrEnum):
    """What the workers change of the engine beside its graphs, by the name of its switch under `remedies`."""

    WEAK_AUX_OUTPUTS = "weak_aux_outputs"
    ONE_CAPTURE_STREAM = "one_capture_stream"
    KV_FROM_MEASUREMENT = "kv_from_measurement"


def hand_off(
    frame: GraphFrame,
    shapes: Iterable[Shape],
    facts_version: str,
    remedies: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The hand-off of a plan for the engine whose facts are those of ``facts_version``.

    ``full`` entries are [tokens, requests, query length or null, longest query or null]; ``piecewise`` ones tokens.
    ``remedies`` are entries of its own; a hand-off without any has none of them.
    """
    every = tuple(shapes)
    content = {
        "format": FORMAT,
        "engine": facts_version,
        "managers": [_entry(frame, manager, every) for manager in managers_of(frame)],
        **_load_aware(frame),
        **remedies,
    }
    return {**content, "sha256": digest(content)}


def _load_aware(frame: GraphFrame) -> dict[str, Any]:
    """Where the engine starts to verify adaptively and where it ends, where that is not at every load."""
    return {LOAD_AWARE_KEY: [frame.adaptive_from_requests, frame.fixed_below_requests]} if frame.follows_load else {}


def digest(content: Mapping[str, Any]) -> str:
    """Of a hand-off, whatever order its keys are in; its own `sha256` is left out."""
    kept = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def manager_class(frame: GraphFrame, manager: Manager) -> str:
    """The engine's class of a manager; with its query length it names one manager of a worker."""
    return TARGET_CLASS if manager.runner is Runner.TARGET else DRAFTER_CLASSES[frame.drafter.kind]


def _entry(frame: GraphFrame, manager: Manager, shapes: tuple[Shape, ...]) -> dict[str, Any]:
    own = [shape for shape in own_shapes(manager, shapes) if _is_first_of_its_size(manager, shape)]
    return {
        "class": manager_class(frame, manager),
        "query_len": manager.query_len,
        "mode": str(manager.mode),
        "lora_cases": list(manager.lora_cases),
        "full": [
            [shape.tokens, shape.requests, shape.query_len, shape.max_query_len]
            for shape in own
            if shape.mode is CudaGraphMode.FULL
        ],
        "piecewise": [shape.tokens for shape in own if shape.mode is CudaGraphMode.PIECEWISE],
    }


def _is_first_of_its_size(manager: Manager, shape: Shape) -> bool:
    """In the manager's first LoRA case and K, and undivided."""
    first_k = manager.draft_steps[0] if manager.draft_steps else None
    return shape.active_loras == manager.lora_cases[0] and shape.ubatches == 1 and shape.draft_steps == first_k
