"""Tokens of a block of the KV cache: the smallest number that every attention backend of the model takes."""

from dataclasses import dataclass
from itertools import product
from math import lcm

from servespec.compiler.facts.attention_backends import BackendFacts
from servespec.compiler.facts.memory import DEFAULT_BLOCK_TOKENS, INDEX_BLOCK_TOKENS, PREFERRED_BLOCK_TOKENS
from servespec.compiler.resolve.attention import Candidate
from servespec.compiler.resolve.attention_needs import AttentionQuestion, flash_attention_page_tokens
from servespec.compiler.resolve.resolution import Resolution


@dataclass(frozen=True, slots=True)
class BackendBlocks:
    """``sizes`` in tokens, none for any; ``is_exact`` refuses multiples; ``preferred`` is taken by a backend alone."""

    sizes: tuple[int, ...]
    is_exact: bool = False
    preferred: int | None = None

    def takes(self, block_tokens: int) -> bool:
        """Source: vllm/v1/attention/backend.py: AttentionBackend.supports_block_size."""
        if not self.sizes:
            return True
        if self.is_exact:
            return block_tokens in self.sizes
        return any(block_tokens % size == 0 for size in self.sizes)


def block_tokens_of(resolution: Resolution) -> int | str:
    """The spec's, else the engine's, or why the engine finds none."""
    written = resolution.request.spec.memory.block_size
    if written is not None:
        return written
    found = shared_block_tokens(_backends(resolution))
    return "the attention backends take no block of one size" if found is None else found


def shared_block_tokens(backends: tuple[BackendBlocks, ...]) -> int | None:
    """Of different backends; None where they have no size in common.

    Source: vllm/platforms/interface.py: Platform._preferred_block_size_for_backends.
    """
    default = DEFAULT_BLOCK_TOKENS.value
    if all(backend.takes(default) for backend in backends):
        return default
    if len(backends) == 1:
        return backends[0].preferred or min(backends[0].sizes)
    common = sorted({lcm(*sizes) for sizes in product(*(backend.sizes or (1,) for backend in backends))})
    return next((size for size in common if all(backend.takes(size) for backend in backends)), None)


def _backends(resolution: Resolution) -> tuple[BackendBlocks, ...]:
    """Of target, index and drafter, each once."""
    draft, own_draft = resolution.draft_attention, resolution.request.draft
    asked = resolution.request.spec.attention.backend
    found = [_of(resolution.question, resolution.candidates, asked)]
    if resolution.request.target.traits.uses_sparse_index:
        found.append(BackendBlocks((INDEX_BLOCK_TOKENS.value,)))
    if own_draft is not None and own_draft is not resolution.request.target:
        found.append(_of(draft.question, draft.candidates, None))
    return tuple(dict.fromkeys(found))


def _of(question: AttentionQuestion | None, candidates: tuple[Candidate, ...], asked: str | None) -> BackendBlocks:
    """A backend that is asked for stays where its support is not known; one that is not known takes the default."""
    name = candidates[0].backend if candidates else asked or ""
    facts = None if question is None else _facts(question, name)
    if question is None or facts is None:
        return BackendBlocks((DEFAULT_BLOCK_TOKENS.value,))
    if name == "FLASH_ATTN":
        return BackendBlocks((flash_attention_page_tokens(question),))
    preferred = PREFERRED_BLOCK_TOKENS.get(name)
    return BackendBlocks(
        facts.block_sizes_tokens, facts.exact_block_sizes, None if preferred is None else preferred.value
    )


def _facts(question: AttentionQuestion, name: str) -> BackendFacts | None:
    """Layers that choose their backend by themselves do so whatever is asked for."""
    own, others = question.facts.model_backends, question.facts.backends
    chosen = next((own[architecture] for architecture in question.needs.architectures if architecture in own), None)
    found = others.get(name) if chosen is None else chosen
    return None if found is None else found.value
