"""Whether the plan fits the memory of its device."""

from collections.abc import Iterator

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable
from servespec.compiler.memory.fitting_changes import fitting_changes
from servespec.compiler.memory.ledger import Fit, Ledger
from servespec.diagnostics import Diagnostic, Place
from servespec.units import size_words


def _fits(subject: Findable) -> Iterator[Diagnostic]:
    ledger = subject.ledger
    if ledger is None or ledger.fits in (Fit.YES, Fit.UNKNOWN):
        return
    rule = rules.P126 if ledger.fits is Fit.NO else rules.P127
    changes = fitting_changes(subject.resolution, ledger)
    help_text = f"write {', or '.join(changes)}" if changes else "use devices with more memory"
    yield rule.at(_place(subject, ledger), _message(subject, ledger), help_text)


def _place(subject: Findable, ledger: Ledger) -> Place:
    memory = subject.resolution.request.spec.memory
    if ledger.pinned_bytes is not None and memory.kv_cache_memory_bytes is not None:
        return subject.place("memory", "kv_cache_memory_bytes")
    if memory.gpu_memory_utilization is not None:
        return subject.place("memory", "gpu_memory_utilization")
    return subject.place("hardware", "gpu")


def _message(subject: Findable, ledger: Ledger) -> str:
    """The verdict by the end of the error bars that it rests on."""
    is_certain = ledger.fits is Fit.NO
    left = ledger.cache.high if is_certain else ledger.cache.low
    if left >= ledger.smallest_cache_bytes:
        used = ledger.whole.low if is_certain else ledger.whole.high
        words = "needs at least" if is_certain else "may need"
        whole = size_words(ledger.device_bytes)
        return f"the plan {words} {size_words(used)} of the {whole} of `{subject.resolution.device.name}`"
    needs = _needs(ledger)
    if ledger.pinned_bytes is not None:
        return f"a KV cache of {size_words(ledger.pinned_bytes)} is too small: {needs}"
    budget = size_words(ledger.budget_bytes)
    if left <= 0:
        taken = size_words(ledger.spent.low if is_certain else ledger.spent.high)
        words = "take at least" if is_certain else "may take"
        return f"weights, a step and the engine {words} {taken} of a budget of {budget}, which leaves nothing for KV"
    words = "leaves at most" if is_certain else "may leave only"
    return f"the budget of {budget} {words} {size_words(left)} for KV: {needs}"


def _needs(ledger: Ledger) -> str:
    if isinstance(ledger.kv, str):
        return "the engine needs some"
    length = ledger.kv.request.max_model_len_tokens
    return f"one request of {length} tokens takes {size_words(ledger.smallest_cache_bytes)}"


CHECKS: tuple[Check, ...] = (_fits,)
