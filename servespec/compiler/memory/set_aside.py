"""Memory that a spec adds to a device or takes off it, and that no formula of the ledger counts."""

from collections.abc import Iterator

from servespec.compiler.memory.checkpoint_weights import usable_checkpoint
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.memory.weights import Unknown
from servespec.compiler.resolve.request import all2all_backend, engine_field
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Basis
from servespec.schema.spec import ServingSpec
from servespec.units import Bytes

_WITHOUT_BUFFERS = ("allgather_reducescatter", "naive", "passthrough")
"""Backends that send tokens by the communicator's own collectives, or leave that to the experts.

Source: vllm/distributed/device_communicators/all2all.py: AgRsAll2AllManager.
"""


def not_counted(resolution: Resolution) -> Iterator[Unknown]:
    """What is on the device and has no formula."""
    spec = resolution.request.spec
    if resolution.request.target.traits.is_multimodal:
        yield _encoders(resolution)
    if spec.lora is not None:
        because = "their size follows from ranks and modules, which are not counted"
        yield Unknown(owner="LoRA adapters", holder=Holder.TARGET, part=Part.WEIGHTS, because=because)
    yield from _buffers(spec)


def _buffers(spec: ServingSpec) -> Iterator[Unknown]:
    """Of libraries that move experts, their tokens, or the cache between devices."""
    parallel, backend = spec.parallel, all2all_backend(spec)
    if parallel.enable_expert_parallel and parallel.data_parallel_size > 1 and backend not in _WITHOUT_BUFFERS:
        because = f"`{backend}` takes buffers of its own for the tokens of experts"
        yield Unknown(owner="all-to-all buffers", holder=Holder.ENGINE, part=Part.OTHER, because=because)
    if engine_field(spec, "parallel", "enable_eplb", False):
        because = "weights on their way to another rank have a second place, which is not counted"
        yield Unknown(owner="expert load balancer", holder=Holder.ENGINE, part=Part.OTHER, because=because)
    if spec.kv_transfer is not None:
        because = "what a KV connector takes on the device is its own"
        yield Unknown(owner="KV connector", holder=Holder.ENGINE, part=Part.OTHER, because=because)


def _encoders(resolution: Resolution) -> Unknown:
    """Their weights are in the model's files, where those are at hand."""
    request = resolution.request
    if usable_checkpoint(request.target, request.spec) is not None:
        because = "the profile run and the caches of encoders of images, audio or video are not counted"
        return Unknown(owner="encoders", holder=Holder.TARGET, part=Part.ACTIVATIONS, because=because)
    because = "encoders of images, audio or video and their caches are not counted"
    return Unknown(owner="encoders", holder=Holder.TARGET, part=Part.WEIGHTS, because=because)


def offloaded_lines(spec: ServingSpec, lines: tuple[MemoryLine, ...]) -> Iterator[MemoryLine]:
    """Weights that the engine keeps in the host's memory; how many follows from their layers.

    Source: vllm/config/offload.py: UVAOffloadConfig, PrefetchOffloadConfig.
    """
    weights = sum(line.high for line in lines if line.part is Part.WEIGHTS)
    flags = {name.lstrip("-").replace("-", "_"): value for name, value in spec.engine.args.items()}
    named_bytes = min(int(float(flags.get("cpu_offload_gb", 0)) * (1 << 30)), weights)
    may_be_all = bool(flags.get("offload_group_size"))
    if not named_bytes and not may_be_all:
        return
    yield MemoryLine(
        owner="weights kept in host memory",
        holder=Holder.TARGET,
        part=Part.WEIGHTS,
        size=Bytes(-named_bytes),
        low=Bytes(-weights if may_be_all else -named_bytes),
        high=Bytes(0),
        basis=Basis.ESTIMATE,
        because="as the spec offloads them, in whole parameters",
    )
