"""What a step takes above what stays: the peak of the engine's profile run."""

from math import ceil

from servespec.compiler.facts.memory import COMPILING_SHARE, PADDED_HEADS, SAMPLER_LOGIT
from servespec.compiler.memory.auxiliary_states import aux_layers
from servespec.compiler.memory.dimensions import CompressedDimensions, Dimensions
from servespec.compiler.memory.expert_workspace import expert_workspace, gathered_ranks
from servespec.compiler.memory.forward_passes import is_compiled
from servespec.compiler.memory.line import Holder, MemoryLine, Part, line_within
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.stage import Stage
from servespec.compiler.memory.weights import Decoder
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes

_ELEMENT_BYTES = 2
# chosen: code that is compiled already takes half, a kernel's workspace more
_PEAK_LOW, _PEAK_HIGH = 0.5, 0.35


def activation_peak(resolution: Resolution, target: Decoder, split: Split, stage: Stage) -> MemoryLine:
    """The wider of what a step holds at once and what the sampler does, which run one after the other.

    Only the last stage samples.  A launch that compiles holds more than later ones, whose code is in the cache: kernels
    are tried on tensors of their own.
    Sources: vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.profile_run; vllm/config/compilation.py:
    CompilationConfig.__post_init__, which asks for `benchmark_combo_kernel`.
    """
    frame, dimensions = resolution.frame, target.dimensions
    tokens, compiling = frame.max_num_batched_tokens, COMPILING_SHARE.value if is_compiled(resolution) else 1.0
    sampler_bytes = 0
    if stage.is_last:
        logits = frame.max_num_seqs * dimensions.vocabulary
        sampler_bytes = logits * SAMPLER_LOGIT.value + tokens * dimensions.hidden * _ELEMENT_BYTES
    own = expert_workspace(resolution, resolution.request.target)
    target_bytes = tokens * _token_elements(resolution, target, split) * _ELEMENT_BYTES
    target_bytes += 0 if own is None else own.size_bytes(tokens)
    draft_bytes = tokens * _draft_elements(resolution, target, split) * _ELEMENT_BYTES if stage.is_last else 0
    step_bytes = int(max(target_bytes, draft_bytes) * compiling)
    because = f"one step of {tokens} tokens" + (", while a first launch compiles" if compiling > 1 else "")
    if sampler_bytes > step_bytes:
        because = f"sampling of {frame.max_num_seqs} requests by {dimensions.vocabulary} tokens"
    return line_within(
        owner="peak of a step",
        holder=Holder.ENGINE,
        part=Part.ACTIVATIONS,
        size=Bytes(max(sampler_bytes, step_bytes)),
        low_share=_PEAK_LOW,
        high_share=_PEAK_HIGH,
        because=because,
    )


def _token_elements(resolution: Resolution, target: Decoder, split: Split) -> int:
    """Of one token, in the layer with the widest MLP, beside the hidden states of ranks whose tokens experts see."""
    dimensions, experts = target.dimensions, target.dimensions.experts
    if dimensions.compressed is not None:
        pads_heads = resolution.device.compute_capability[0] != 12
        return _compressed_elements(dimensions, dimensions.compressed, split, pads_heads=pads_heads)
    gathered = 0 if experts is None else gathered_ranks(resolution.request.spec) - 1
    width = max(dimensions.mlp, experts.shared_width if experts else 0)
    return gathered * dimensions.hidden + _layer_elements(resolution, dimensions.hidden, width, split)


def _draft_elements(resolution: Resolution, target: Decoder, split: Split) -> int:
    """The same of the drafter, while the target's are kept; 0 where the drafter is part of the target."""
    draft = resolution.request.draft
    if draft is None:
        return 0
    return _layer_elements(resolution, target.dimensions.hidden, draft.traits.intermediate_size or 0, split)


def _layer_elements(resolution: Resolution, hidden: int, width: int, split: Split) -> int:
    """Three hidden states, those that go to the drafter, and both tensors of an MLP."""
    return (3 + aux_layers(resolution)) * hidden + 3 * width // split.tensor


def _compressed_elements(
    dimensions: Dimensions, compressed: CompressedDimensions, split: Split, *, pads_heads: bool
) -> int:
    """Three sets of parallel hidden states, queries, and queries and outputs of as many heads as the kernel takes.

    Source: vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4DecoderLayer; flashmla.py: get_padded_num_q_heads.
    """
    heads = split.heads(dimensions.heads)
    padded = max(heads, ceil(heads / PADDED_HEADS.value) * PADDED_HEADS.value) if pads_heads else heads
    return 3 * compressed.hidden_states * dimensions.hidden + (heads + 2 * padded) * dimensions.head
