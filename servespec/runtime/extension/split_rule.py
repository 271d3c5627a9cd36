"""Binds FlashAttention 3's split rule to the widest FULL graph of the plan.

In every step that the token list could hold, the engine allows up to 32 KV splits, because a FULL graph must have their
accumulators when it is captured.  A wide list makes that nearly every step, PIECEWISE and eager ones too, and each asks
for splits x heads x tokens x head size in float32, which no profile run has counted.  Steps wider than every FULL graph
are left to the kernel's own choice, as the engine leaves those above its list.
Source: vllm/v1/attention/backends/flash_attn.py: FlashAttentionMetadataBuilder.build;
vllm/v1/attention/backends/mla/flashattn_mla.py: FlashAttnMLAMetadataBuilder._build_decode.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def widest_full_tokens(entries: Iterable[Mapping[str, Any]]) -> int:
    """Tokens of the widest FULL graph of any manager of a hand-off; 0 where there is none."""
    return max((tokens for entry in entries for tokens, *_ in entry["full"]), default=0)


def bind_split_rule(runner: Any, full_tokens: int) -> None:
    """Lowers the rule's bound to ``full_tokens`` in every metadata builder that ``runner`` makes from now on."""
    engines_own = runner.initialize_kv_cache

    def initialize_kv_cache(*args: Any, **kwargs: Any) -> None:
        engines_own(*args, **kwargs)
        for builder in _builders_with_the_rule(runner):
            builder.max_cudagraph_size = min(builder.max_cudagraph_size, full_tokens)

    runner.initialize_kv_cache = initialize_kv_cache


def split_rule_tokens(runner: Any) -> list[int]:
    """The bounds that are in force, each once; none where no builder has the rule."""
    return sorted({builder.max_cudagraph_size for builder in _builders_with_the_rule(runner)})


def _builders_with_the_rule(runner: Any) -> Iterator[Any]:
    """Of the target, whose builders draft step 0 uses too, then of the drafter.

    They are told by the attribute, which serves nothing else once a builder is made.
    """
    for groups in (*runner.attn_groups, *getattr(runner.speculator, "attn_groups", ())):
        for builder in (one for group in groups for one in group.metadata_builders):
            if getattr(builder, "max_cudagraph_size", None) is not None:
                yield builder
