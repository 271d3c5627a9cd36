"""Which remedies are in force under a plan, and why another is not.

Each works inside the engine's workers, so all of them need the worker extension.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from servespec.compiler.facts.auxiliary_outputs import AUXILIARY_OUTPUT_METHODS
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.proven_remedies import Architecture, ProvenRemedy, proof_of
from servespec.compiler.graphs.hand_off import Remedy, digest
from servespec.compiler.graphs.managers import managers_of, own_shapes
from servespec.compiler.graphs.shape import Runner, Shape
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.compiler.parallel_ranks import world_ranks
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Origin, Resolved
from servespec.schema.spec import ServingSpec


def asked_remedies(spec: ServingSpec) -> tuple[Remedy, ...]:
    return tuple(remedy for remedy in Remedy if getattr(spec.remedies, remedy) is True)


def remedies_in_force(resolution: Resolution, asked: Sequence[Shape], lowering: Lowering) -> tuple[Remedy, ...]:
    """What the workers are handed: remedies that the spec asks for, and those that it leaves to `auto` and are proven.

    The lowering is chosen by :func:`remedies_with_effect` before that, so that `auto` never changes it.
    """
    if lowering is not Lowering.EXTENSION:
        return ()
    wanted = {*asked_remedies(resolution.request.spec), *_proofs(resolution)}
    return tuple(remedy for remedy in Remedy if remedy in wanted and not why_idle(remedy, resolution, asked))


def _proofs(resolution: Resolution) -> Mapping[Remedy, ProvenRemedy]:
    """Of the remedies that the spec leaves to `auto`."""
    section, architecture = resolution.request.spec.remedies, architecture_of(resolution)
    if architecture is None:
        return {}
    proofs = {remedy: proof_of(remedy, architecture) for remedy in Remedy if getattr(section, remedy) == "auto"}
    return {remedy: proof for remedy, proof in proofs.items() if proof is not None}


def architecture_of(resolution: Resolution) -> Architecture | None:
    """None without a draft model, where a config names several architectures or none, and on another engine's source.

    None too where the launch has more than one rank or LoRA, or where it is not known what the target attends with: a
    capture then holds more than was replayed.  Builds of one release differ in what follows the `+` of their versions,
    and have the same source.
    """
    engine, spec, draft = resolution.engine, resolution.request.spec, resolution.request.draft
    if draft is None or not engine.verified:
        return None
    if world_ranks(spec) > 1 or spec.lora is not None or not resolution.candidates:
        return None
    target_names, draft_names = resolution.request.target.traits.architectures, draft.traits.architectures
    if len(target_names) != 1 or len(draft_names) != 1:
        return None
    release, capability = engine.version.partition("+")[0], resolution.device.compute_capability
    backend = resolution.candidates[0].backend
    return Architecture(release, capability, target_names[0], draft_names[0], backend)


def with_remedies(resolution: Resolution, in_force: Sequence[Remedy]) -> Resolution:
    """A resolution with what `auto` turned on among its values."""
    values = {
        f"remedies.{remedy}": Resolved(True, Origin.DERIVED, _because(proof))
        for remedy, proof in _proofs(resolution).items()
        if remedy in in_force
    }
    return replace(resolution, values={**resolution.values, **values})


def _because(proof: ProvenRemedy) -> str:
    return f"measured on this architecture and its graphs held against eager: {proof.architecture.words}"


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
    in_force = remedies_in_force(resolution, asked, lowering)
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
