"""Which remedies of a spec do something under its plan, and why another does not.

Each works inside the engine's workers, so all of them need the worker extension.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from servespec.compiler.facts.auxiliary_outputs import AUXILIARY_OUTPUT_METHODS
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.hand_off import Remedy, digest
from servespec.compiler.graphs.managers import managers_of, own_shapes
from servespec.compiler.graphs.shape import Runner, Shape
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.graph_pools import GraphRemedy
from servespec.compiler.resolve.resolution import Resolution
from servespec.schema.spec import ServingSpec


def asked_remedies(spec: ServingSpec) -> tuple[Remedy, ...]:
    return tuple(remedy for remedy in Remedy if getattr(spec.remedies, remedy) is True)


def remedies_with_effect(resolution: Resolution, asked: Sequence[Shape]) -> tuple[Remedy, ...]:
    """Those that the spec asks for and that change something where the shapes ``asked`` for are captured."""
    remedies = asked_remedies(resolution.request.spec)
    return tuple(remedy for remedy in remedies if not why_idle(remedy, resolution, asked))


def why_idle(remedy: Remedy, resolution: Resolution, asked: Sequence[Shape]) -> str:
    """Why a remedy changes nothing, '' where it does."""
    if remedy is Remedy.WEAK_AUX_OUTPUTS:
        return _why_no_nested_outputs(resolution, asked)
    if remedy is Remedy.ONE_CAPTURE_STREAM:
        capturing = [manager for manager in managers_of(resolution.frame) if own_shapes(manager, asked)]
        return "" if len(capturing) > 1 else "fewer than two graph managers capture, and each has one stream already"
    pinned = resolution.request.spec.memory.kv_cache_memory_bytes is not None
    return "`memory.kv_cache_memory_bytes` pins the KV cache already" if pinned else ""


def _why_no_nested_outputs(resolution: Resolution, asked: Sequence[Shape]) -> str:
    if resolution.drafting.method.value not in AUXILIARY_OUTPUT_METHODS.value:
        return "this target hands no auxiliary hidden states to a drafter"
    if not resolution.values["compilation.breakable_cudagraph"].value:
        return "graphs are pieces of a compiled model, whose outputs are not nested"
    if not any(shape.runner is Runner.TARGET and shape.mode is CudaGraphMode.PIECEWISE for shape in asked):
        return "no PIECEWISE graph of the target is captured"
    return ""


def graph_remedies(resolution: Resolution, asked: tuple[Shape, ...], lowering: Lowering) -> frozenset[GraphRemedy]:
    in_force = remedies_with_effect(resolution, asked) if lowering is Lowering.EXTENSION else ()
    return frozenset(one for one in GraphRemedy if str(one) in in_force)


def handed_remedies(remedies: Sequence[Remedy], spec: ServingSpec) -> Mapping[str, Any]:
    """What a hand-off says of them; nothing without any.

    The engine finds a kept KV cache by a digest that leaves out the utilization and variables of other programs.  The
    hand-off is part of that digest, so that both are in the hand-off.
    Source: vllm/config/cache.py: CacheConfig.compute_hash; vllm/config/vllm.py: VllmConfig.compute_hash.
    """
    if not remedies:
        return {}
    names = {"remedies": [str(remedy) for remedy in remedies]}
    if Remedy.KV_FROM_MEASUREMENT not in remedies:
        return names
    sections = {name: getattr(spec, name).model_dump(mode="json") for name in ("memory", "engine")}
    return {**names, "measured_for": digest(sections)}
