"""The vocabulary logits that a drafter's FULL graph computes and samples from."""

from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Shape
from servespec.compiler.memory.caching_allocator import Allocator
from servespec.compiler.memory.config_sizes import size_of
from servespec.compiler.resolve.request import engine_field
from servespec.compiler.resolve.resolution import Resolution

LOGITS = "draft logits"
_BF16_BYTES = 2


def draft_logits(resolution: Resolution, pool: Allocator, shape: Shape, *, stepwise: bool) -> None:
    """Takes and gives back the logits of one graph.

    A block drafter computes the logits of all its steps at once unless ``stepwise``; others those of one step.
    Sources: vllm/v1/worker/gpu/spec_decode/dspark/speculator.py: DSparkSpeculator._sample_sequential;
    vllm/model_executor/layers/logits_processor.py: LogitsProcessor.
    """
    steps = resolution.frame.num_speculative_tokens if resolution.drafting.kind is DrafterKind.BLOCK else 1
    rows = (shape.requests or shape.tokens) * (1 if stepwise else steps)
    blocks = [pool.take(rows * width, LOGITS) for width in _row_widths(resolution)]
    pool.give(*blocks)


def _row_widths(resolution: Resolution) -> tuple[int, ...]:
    """Bytes of a row in each tensor that is alive at the peak.

    With several ranks: the shard, what all of them gather, and the same made contiguous.  A draft vocabulary of its
    own is scattered into the target's, and a soft cap makes a second copy.
    """
    request = resolution.request
    draft = request.draft or request.target
    config, ranks = text_config(draft.config), request.spec.parallel.tensor_parallel_size
    own = size_of(config, "draft_vocab_size") or draft.traits.vocab_size or request.target.traits.vocab_size or 0
    whole = _BF16_BYTES * own
    shard = whole // ranks
    if engine_field(request.spec, "speculative", "use_local_argmax_reduction", False):
        return (shard,)
    widths = (shard, whole, whole) if ranks > 1 else (whole,)
    if config.get("final_logit_softcapping"):
        widths = (*widths, whole)
    vocabulary = draft.traits.vocab_size or own
    return (*widths, _BF16_BYTES * vocabulary) if own != vocabulary else widths
