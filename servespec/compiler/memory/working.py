"""What a running engine takes beside weights, graphs and KV: the peak of its profile run, workspaces, the context."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from servespec.compiler.facts.devices import Device
from servespec.compiler.facts.memory import (
    BITS_WORD,
    COMMUNICATOR,
    CONTEXT,
    COUNT_BYTES,
    MACHINE_ITSELF,
    WORKER_CONTEXT,
)
from servespec.compiler.memory.activation_peak import activation_peak
from servespec.compiler.memory.expert_workspace import expert_workspace, gathered_ranks
from servespec.compiler.memory.forward_passes import received
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line, line_within
from servespec.compiler.memory.split import Split, split_of
from servespec.compiler.memory.stage import Stage
from servespec.compiler.memory.weights import Decoder
from servespec.compiler.parallel_ranks import replica_ranks
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes

BEFORE_OWNER = "in use before the engine looks"
_ELEMENT_BYTES = 2
# chosen: a machine without a desktop uses a third of that, one with other work on it much more
_MACHINE_LOW, _MACHINE_HIGH = 0.65, 0.6
# chosen: every launch on one device had the same; smaller devices have smaller contexts, and a display takes more
_WORKER_LOW, _WORKER_HIGH = 0.4, 0.4
# chosen: measured remainders are 8 % below to 36 % above it; other devices and drivers were not measured
_CONTEXT_LOW, _CONTEXT_HIGH = 0.3, 1.0
# chosen: the two measured remainders are 25 % to either side; more ranks keep more channels
_COMMUNICATOR_LOW, _COMMUNICATOR_HIGH = 0.5, 1.5
# chosen: other kernels of experts keep other workspaces, or none
_WORKSPACE_LOW, _WORKSPACE_HIGH = 0.9, 0.5


def working_lines(resolution: Resolution, target: Decoder | str, stage: Stage) -> tuple[MemoryLine, ...]:
    """The engine's own memory on one rank; only what depends on no model where the target's sizes are not known."""
    split = split_of(resolution.request.spec)
    found = [_context(), _before(resolution.device), *_communicator(resolution), *_received(resolution, stage)]
    if isinstance(target, Decoder):
        found += (activation_peak(resolution, target, split, stage), *_hidden_states(resolution, target, stage))
        found += _expert_workspace(resolution, target, split)
        if stage.is_last:
            found += (*_sampler_states(resolution, target), *_draft_logits(resolution, target))
    return tuple(found)


def _received(resolution: Resolution, stage: Stage) -> Iterator[MemoryLine]:
    """What the stage before sends, as wide as the widest step and where graphs read it.

    Source: vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.load_model.
    """
    count, hidden_bytes = received(resolution, stage)
    tokens = resolution.frame.max_num_batched_tokens
    if count:
        size = Bytes(tokens * count * hidden_bytes)
        because = f"{tokens} tokens x {count} tensors x {hidden_bytes} bytes"
        yield exact_line("hidden states of the stage before", Holder.ENGINE, Part.OTHER, size, because)


def _hidden_states(resolution: Resolution, target: Decoder, stage: Stage) -> Iterator[MemoryLine]:
    """What a drafter reads of the target; DeepSeek V4 keeps all its parallel hidden states beside, whatever drafts.

    Source: vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py: TargetDependentARSpeculator;
    vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4Model.
    """
    if resolution.request.spec.speculative is None or not stage.is_last:
        return
    dimensions, tokens = target.dimensions, resolution.frame.max_num_batched_tokens
    yield line_within(
        owner="hidden states kept for the drafter",
        holder=Holder.ENGINE,
        part=Part.OTHER,
        size=Bytes(tokens * dimensions.hidden * _ELEMENT_BYTES),
        low_share=0.0,
        high_share=1.0,
        because=f"{tokens} tokens of {dimensions.hidden} elements",
    )
    if dimensions.compressed is not None:
        elements = dimensions.compressed.hidden_states * dimensions.hidden
        because = f"{tokens} tokens of {elements} elements"
        size = Bytes(tokens * elements * _ELEMENT_BYTES)
        yield exact_line("parallel hidden states of the target", Holder.ENGINE, Part.OTHER, size, because)


def _sampler_states(resolution: Resolution, target: Decoder) -> Iterator[MemoryLine]:
    """Of every request by every token of the vocabulary, on each rank, whether a request asks for penalties or not.

    Model Runner V1 counts the tokens of a step when it needs them.
    Sources, below vllm/v1/worker/gpu: sample/penalties.py: PenaltiesState.__init__; structured_outputs.py:
    StructuredOutputsWorker.__init__; model_runner.py: GPUModelRunner.load_model.
    """
    if resolution.runner is not ModelRunner.V2:
        return
    frame, vocabulary = resolution.frame, target.dimensions.vocabulary
    requests, bits_bytes = frame.max_num_seqs, ceil(vocabulary / BITS_WORD.value) * COUNT_BYTES.value
    size = Bytes(requests * (vocabulary * COUNT_BYTES.value + bits_bytes))
    because = f"{requests} requests by {vocabulary} tokens x {COUNT_BYTES.value} bytes, and a bit of each"
    yield exact_line("tokens that the sampler counts for penalties", Holder.ENGINE, Part.OTHER, size, because)
    rows = requests * (1 + frame.num_speculative_tokens)
    because = f"{rows} rows of logits by {vocabulary} bits"
    yield exact_line("grammar masks", Holder.ENGINE, Part.OTHER, Bytes(rows * bits_bytes), because)


def _draft_logits(resolution: Resolution, target: Decoder) -> Iterator[MemoryLine]:
    """Of every draft of every request, for probabilistic verification.

    Source: vllm/v1/worker/gpu/spec_decode/speculator.py: DraftModelSpeculator.__init__.
    """
    section, frame = resolution.request.spec.speculative, resolution.frame
    if section is None or section.draft_sample_method != "probabilistic":
        return
    drafts = frame.max_num_seqs * frame.num_speculative_tokens
    yield line_within(
        owner="logits of the drafts",
        holder=Holder.DRAFTER,
        part=Part.OTHER,
        size=Bytes(drafts * target.dimensions.vocabulary * _ELEMENT_BYTES),
        low_share=0.0,
        high_share=1.0,
        because=f"{drafts} drafts by {target.dimensions.vocabulary} tokens",
    )


def _expert_workspace(resolution: Resolution, target: Decoder, split: Split) -> Iterator[MemoryLine]:
    """Both results of the experts' matrices, for every token and each of its experts.

    Kernels that allocate their own at every call have none that stays.
    Source: vllm/model_executor/layers/fused_moe/experts/triton_moe.py: TritonExperts.workspace_shapes.
    """
    experts = target.dimensions.experts
    if experts is None or expert_workspace(resolution, resolution.request.target) is not None:
        return
    tokens = resolution.frame.max_num_batched_tokens * gathered_ranks(resolution.request.spec)
    width = experts.width // split.expert_width
    first, second = max(width, target.dimensions.hidden), max(2 * width, target.dimensions.hidden)
    yield line_within(
        owner="workspace of the experts",
        holder=Holder.ENGINE,
        part=Part.OTHER,
        size=Bytes(tokens * experts.per_token * (first + second) * _ELEMENT_BYTES),
        low_share=_WORKSPACE_LOW,
        high_share=_WORKSPACE_HIGH,
        because=f"{tokens} tokens by {experts.per_token} experts by {first} + {second} elements",
    )


def _before(device: Device) -> MemoryLine:
    """What the engine does not find free: its budget is a share of the whole device all the same.

    That is the worker's own context, and of a memory that a machine and its device share, the machine's part.
    Source: vllm/v1/worker/utils.py: request_memory.
    """
    because = "a worker's context, on launches of one H200"
    size, low, high = WORKER_CONTEXT.value, _WORKER_LOW, _WORKER_HIGH
    if device.unified_memory:
        because = "of the machine's system and programs, by one start-up log"
        size, low, high = MACHINE_ITSELF.value, _MACHINE_LOW, _MACHINE_HIGH
    line = line_within(
        owner=BEFORE_OWNER,
        holder=Holder.ENGINE,
        part=Part.OTHER,
        size=size,
        low_share=low,
        high_share=high,
        because=because,
    )
    return replace(line, is_budgeted=False)


def _context() -> MemoryLine:
    return line_within(
        owner="CUDA context and small buffers",
        holder=Holder.ENGINE,
        part=Part.OTHER,
        size=CONTEXT.value,
        low_share=_CONTEXT_LOW,
        high_share=_CONTEXT_HIGH,
        because="measured on launches of one H200",
    )


def _communicator(resolution: Resolution) -> Iterator[MemoryLine]:
    """Replicas of a dense model have nothing to say to each other on the device."""
    spec = resolution.request.spec
    talks = resolution.request.target.traits.is_mixture_of_experts and spec.parallel.data_parallel_size > 1
    if replica_ranks(spec) == 1 and not talks:
        return
    yield line_within(
        owner="NCCL buffers",
        holder=Holder.ENGINE,
        part=Part.OTHER,
        size=COMMUNICATOR.value,
        low_share=_COMMUNICATOR_LOW,
        high_share=_COMMUNICATOR_HIGH,
        because="measured on two launches of two ranks; more ranks were not measured",
    )
