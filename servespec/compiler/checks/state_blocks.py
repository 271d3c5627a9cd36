"""Whether the cache has a block for the state of every request, which decode graphs of recurrent layers need."""

from collections.abc import Iterator

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable
from servespec.compiler.memory.kv_cache import KvCache
from servespec.diagnostics import Diagnostic


def _a_block_for_every_state(subject: Findable) -> Iterator[Diagnostic]:
    """Source: vllm/config/compilation.py: CompilationConfig.resolve_cudagraph_mode_and_sizes."""
    ledger = subject.ledger
    if ledger is None or not isinstance(ledger.kv, KvCache):
        return
    is_known = ledger.pinned_bytes is not None or ledger.is_spending_known
    if not ledger.kv.has_states or not subject.frame.mode.has_full() or not is_known:
        return
    requests = subject.frame.max_num_seqs
    least, most = ledger.kv.blocks(ledger.cache.low), ledger.kv.blocks(ledger.cache.high)
    if requests <= least:
        return
    rule, blocks, words = (rules.P140, most, "at most") if requests > most else (rules.P141, least, "maybe only")
    yield rule.at(
        subject.place("scheduler", "max_num_seqs"),
        f"`{requests}` requests decode at a time, and the cache has {words} {blocks} blocks for their states",
        f"write `scheduler.max_num_seqs: {blocks}`" if blocks else "give the KV cache more memory",
    )


CHECKS: tuple[Check, ...] = (_a_block_for_every_state,)
"""A plan without FULL graphs, or without recurrent layers, has nothing to say here."""
