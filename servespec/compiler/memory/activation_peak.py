"""What a step takes above what stays: the peak of the engine's profile run."""

from dataclasses import replace
from math import ceil

from servespec.compiler.facts.memory import (
    CACHE_FLUSH,
    DRAFT_EXAMPLE_TENSORS,
    EXAMPLE_TENSORS,
    LEFT_BY_PROFILE,
    PADDED_HEADS,
    SAMPLER_LOGIT,
)
from servespec.compiler.graphs.shape import Runner
from servespec.compiler.memory.auxiliary_states import aux_layers
from servespec.compiler.memory.dimensions import CompressedDimensions, Dimensions
from servespec.compiler.memory.expert_workspace import expert_workspace, gathered_ranks
from servespec.compiler.memory.line import Holder, MemoryLine, Part, line_within
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.stage import Stage
from servespec.compiler.memory.weights import Decoder
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes

_ELEMENT_BYTES = 2
# chosen: architectures that were not measured hold less or more at once, a kernel's workspace is not counted
STEP_LOW, _PEAK_HIGH = 0.2, 0.35


def activation_peak(resolution: Resolution, target: Decoder, split: Split, stage: Stage) -> MemoryLine:
    """The widest moment of the profile run, above what that leaves held, of those that come one after the other.

    The lower end is of a launch whose code is in the cache, which compiles nothing.  Only the last stage samples.
    Source: vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.profile_run.
    """
    frame, left_bytes = resolution.frame, 0 if _profiles_again(resolution) else LEFT_BY_PROFILE.value
    tokens = frame.max_num_batched_tokens
    step = max(_step_bytes(resolution, target, split, stage) - left_bytes, 0), f"one step of {tokens} tokens"
    sampling = (
        _sampler_bytes(resolution, target) if stage.is_last else 0,
        f"sampling of {frame.max_num_seqs} requests by {target.dimensions.vocabulary} tokens",
    )
    compiling = (
        _compiling_bytes(resolution, target, split, stage) - left_bytes,
        f"a first launch compiles, and tries kernels on tensors of {tokens} tokens and an embedding",
    )
    later_bytes, _ = max(step, sampling)
    size_bytes, because = max(step, sampling, compiling)
    line = line_within(
        owner="peak of a step",
        holder=Holder.ENGINE,
        part=Part.ACTIVATIONS,
        size=Bytes(size_bytes),
        low_share=STEP_LOW,
        high_share=_PEAK_HIGH,
        because=because,
    )
    return replace(line, low=Bytes(int(later_bytes * (1 - STEP_LOW))))


def _profiles_again(resolution: Resolution) -> bool:
    """Once all is compiled and made, by the remedy that needs to know what a later start takes."""
    return resolution.request.spec.remedies.kv_from_measurement is True


def _step_bytes(resolution: Resolution, target: Decoder, split: Split, stage: Stage) -> int:
    tokens, own = resolution.frame.max_num_batched_tokens, expert_workspace(resolution, resolution.request.target)
    target_bytes = tokens * _token_elements(resolution, target, split) * _ELEMENT_BYTES
    target_bytes += 0 if own is None else own.size_bytes(tokens)
    draft_bytes = tokens * _draft_elements(resolution, target, split) * _ELEMENT_BYTES if stage.is_last else 0
    return max(target_bytes, draft_bytes)


def _sampler_bytes(resolution: Resolution, target: Decoder) -> int:
    frame, dimensions = resolution.frame, target.dimensions
    logits_bytes = frame.max_num_seqs * dimensions.vocabulary * SAMPLER_LOGIT.value
    return logits_bytes + frame.max_num_batched_tokens * dimensions.hidden * _ELEMENT_BYTES


def _compiling_bytes(resolution: Resolution, target: Decoder, split: Split, stage: Stage) -> int:
    """What the first kernels are tried on: tensors of their own, as large as those that they will read and write.

    They look tokens up, so that an embedding of one rank is among them.  The drafter's are tried while the target's
    outputs wait, if it is compiled.  Source: torch/_inductor/codegen/wrapper.py: generate_and_run_autotune_block.
    """
    if Runner.TARGET not in resolution.compiled or _profiles_again(resolution):
        return 0
    hidden_bytes = resolution.frame.max_num_batched_tokens * target.dimensions.hidden * _ELEMENT_BYTES
    embedding_bytes = target.dimensions.vocabulary // split.tensor * target.dimensions.hidden * _ELEMENT_BYTES
    tried = embedding_bytes + EXAMPLE_TENSORS.value * hidden_bytes if stage.is_first else 0
    has_drafter = resolution.request.draft is not None and Runner.DRAFTER in resolution.compiled
    if not has_drafter or not stage.is_last:
        return tried
    drafters = _handed_to_drafter(resolution) + DRAFT_EXAMPLE_TENSORS.value
    return max(tried, embedding_bytes + drafters * hidden_bytes + CACHE_FLUSH.value)


def _handed_to_drafter(resolution: Resolution) -> int:
    """Hidden states that wait while it runs: the last one, those of other layers, and what they are combined to.

    Source: vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py: TargetDependentARSpeculator.propose.
    """
    count = aux_layers(resolution)
    return 1 + count + (count > 0)


def _token_elements(resolution: Resolution, target: Decoder, split: Split) -> int:
    """Of one token, in the layer with the widest MLP: three hidden states, those for the drafter, and its tensors.

    Beside the hidden states of ranks whose tokens experts see.
    """
    dimensions, experts = target.dimensions, target.dimensions.experts
    if dimensions.compressed is not None:
        pads_heads = resolution.device.compute_capability[0] != 12
        return _compressed_elements(dimensions, dimensions.compressed, split, pads_heads=pads_heads)
    gathered = 0 if experts is None else gathered_ranks(resolution.request.spec) - 1
    width = max(dimensions.mlp, experts.shared_width if experts else 0)
    return (gathered + 3 + aux_layers(resolution)) * dimensions.hidden + 3 * width // split.tensor


def _draft_elements(resolution: Resolution, target: Decoder, split: Split) -> int:
    """Of one token in the drafter's MLP: beside what waits, a residual, what attention wrote, and the MLP's tensors.

    0 where the drafter is part of the target.
    """
    draft = resolution.request.draft
    if draft is None:
        return 0
    query = (draft.traits.num_attention_heads or 0) * (draft.traits.head_size or 0)
    width = draft.traits.intermediate_size or 0
    return (_handed_to_drafter(resolution) + 1) * target.dimensions.hidden + (query + 3 * width) // split.tensor


def _compressed_elements(
    dimensions: Dimensions, compressed: CompressedDimensions, split: Split, *, pads_heads: bool
) -> int:
    """Three sets of parallel hidden states, queries, and queries and outputs of as many heads as the kernel takes.

    Source: vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4DecoderLayer; flashmla.py: get_padded_num_q_heads.
    """
    heads = split.heads(dimensions.heads)
    padded = max(heads, ceil(heads / PADDED_HEADS.value) * PADDED_HEADS.value) if pads_heads else heads
    return 3 * compressed.hidden_states * dimensions.hidden + (heads + 2 * padded) * dimensions.head
