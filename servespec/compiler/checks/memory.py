"""Whether the plan fits the memory of its device."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable, bound_place
from servespec.compiler.memory.fitting_changes import FittingChanges
from servespec.compiler.memory.ledger import Amount, Fit, Ledger, blocks_override, with_most_graphs
from servespec.compiler.memory.line import Part
from servespec.compiler.memory.unbudgeted import widest_decode_tokens
from servespec.compiler.memory.within_bound import GraphChoice
from servespec.compiler.resolve.graph_request import written_fields
from servespec.diagnostics import Diagnostic, Place
from servespec.units import size_words

_MIB = 1 << 20


def _fits(subject: Findable) -> Iterator[Diagnostic]:
    ledger = subject.ledger
    if ledger is None or ledger.fits in (Fit.YES, Fit.UNKNOWN):
        return
    help_text = _help(subject.fitting_changes)
    if ledger.fits is Fit.NO:
        yield rules.P126.at(_place(subject, ledger), _message(subject, ledger), help_text)
    elif ledger.fits_at_start is Fit.MARGINAL:
        yield rules.P127.at(_place(subject, ledger), _message(subject, ledger), help_text)
    else:
        yield rules.P132.at(_place(subject, ledger), _runtime_message(subject, ledger), help_text)


def _help(found: FittingChanges) -> str:
    """What to write, and which fields were tried in vain."""
    none = "no change of one field makes it fit: change several, or use devices with more memory"
    written = f"write {', or '.join(found.changes)}" if found.changes else none
    *others, last = (f"`{field}`" for field in found.helpless) if found.helpless else ("",)
    helpless = f"{', '.join(others)} and {last}" if others else last
    return f"{written}; {helpless} alone cannot make it fit" if last and found.changes else written


def _place(subject: Findable, ledger: Ledger) -> Place:
    memory = subject.resolution.request.spec.memory
    if ledger.is_short_by_share and memory.gpu_memory_utilization is not None:
        return subject.place("memory", "gpu_memory_utilization")
    if ledger.pinned_bytes is not None and blocks_override(subject.resolution.request.spec) is not None:
        return subject.place("memory", "num_gpu_blocks_override")
    if ledger.pinned_bytes is not None and memory.kv_cache_memory_bytes is not None:
        return subject.place("memory", "kv_cache_memory_bytes")
    if memory.gpu_memory_utilization is not None:
        return subject.place("memory", "gpu_memory_utilization")
    return subject.place("hardware", "gpu")


def _message(subject: Findable, ledger: Ledger) -> str:
    """The verdict by the end of the error bars that it rests on."""
    is_certain = ledger.fits is Fit.NO
    if ledger.is_short_by_share:
        free = ledger.free_at_start.high if is_certain else ledger.free_at_start.low
        words = "at most" if is_certain else "maybe only"
        return (
            f"the engine starts where {size_words(ledger.budget_bytes)} are free, its share of the device, and of the "
            f"{size_words(ledger.device_bytes)} of `{subject.resolution.device.name}` {words} {size_words(free)} are"
        )
    left = ledger.cache.high if is_certain else ledger.cache.low
    if left >= ledger.smallest_cache_bytes:
        used = ledger.whole.low if is_certain else ledger.whole.high
        words = "needs at least" if is_certain else "may need"
        whole = size_words(ledger.device_bytes)
        return f"the plan {words} {size_words(used)} of the {whole} of `{subject.resolution.device.name}`"
    needs = _needs(ledger)
    if ledger.pinned_bytes is not None:
        blocks = blocks_override(subject.resolution.request.spec)
        counted = "" if blocks is None else f"{blocks} blocks, "
        return f"a KV cache of {counted}{size_words(ledger.pinned_bytes)} is too small: {needs}"
    budget = size_words(ledger.budget_bytes)
    if left <= 0:
        taken = size_words(ledger.spent.low if is_certain else ledger.spent.high)
        words = "take at least" if is_certain else "may take"
        return f"weights, a step and the engine {words} {taken} of a budget of {budget}, which leaves nothing for KV"
    words = "leaves at most" if is_certain else "may leave only"
    return f"the budget of {budget} {words} {size_words(left)} for KV: {needs}"


def _runtime_message(subject: Findable, ledger: Ledger) -> str:
    """By the middle of the error bars where the step is too large there already, else by their high ends."""
    runtime, whole = ledger.of(Part.RUNTIME), ledger.whole
    runs_out = whole.size > ledger.device_bytes
    step, others = (runtime.size, whole.size) if runs_out else (runtime.high, whole.high)
    words = "does not fit" if runs_out else "may not fit"
    return (
        f"a decode step of {widest_decode_tokens(subject.resolution)} tokens takes {size_words(step)} for the sparse "
        f"indexer's logits, which {words} beside {size_words(others - step)} of the {size_words(ledger.device_bytes)} "
        f"of `{subject.resolution.device.name}`"
    )


def _needs(ledger: Ledger) -> str:
    if isinstance(ledger.kv, str):
        return "the engine needs some"
    length, blocks = ledger.kv.request.max_model_len_tokens, ledger.kv.request_blocks + 1
    return f"one request of {length} tokens takes {size_words(ledger.smallest_cache_bytes)} in {blocks} blocks"


def _graph_bound(subject: Findable) -> Iterator[Diagnostic]:
    """What the graphs take against what the spec lets them."""
    bound_bytes, stages = subject.resolution.request.spec.memory.max_cudagraph_memory, subject.stages
    if bound_bytes is None or not stages:
        return
    ledger = with_most_graphs(stages)
    graphs, place = ledger.of(Part.GRAPHS), bound_place(subject)
    if any(one.part is Part.GRAPHS for one in ledger.unknown):
        yield rules.P130.at(place, "what the graphs of this plan take is not known", "the bound is not held")
    elif subject.choice is not None and subject.choice.fits:
        yield rules.P131.at(place, _chosen(subject.choice, graphs), _explicitly(subject.choice))
    elif graphs.size > bound_bytes:
        which = "the graphs" if subject.choice is None else "even the smallest graphs of what the spec leaves open"
        is_certain = graphs.low > bound_bytes
        taken = f"take at least {size_words(graphs.low)}" if is_certain else f"take {_about(graphs)}"
        message = f"{which} {taken}; the spec lets them take {size_words(bound_bytes)}"
        rule = rules.P129 if is_certain else rules.P130
        yield rule.at(place, message, _smaller_graphs(subject, ledger))


def _about(graphs: Amount) -> str:
    return f"about {size_words(graphs.size)} ({size_words(graphs.low)} to {size_words(graphs.high)})"


def _chosen(choice: GraphChoice, graphs: Amount) -> str:
    """What the chosen graphs take, and what would be captured without the bound."""
    given_up = ", ".join(_given_up(choice))
    within = f"within {size_words(choice.bound_bytes)} the graphs take {_about(graphs)}"
    return f"{within}; given up: {given_up}" if given_up else f"{within}; nothing is given up"


def _given_up(choice: GraphChoice) -> Iterator[str]:
    extent, widest, density = choice.extent, choice.space.widest, choice.density
    if extent.decode is not None and widest.decode is not None:
        whole = widest.decode.covered_requests
        missing = whole - extent.decode.covered_requests
        if missing:
            yield f"FULL graphs of {missing} of {whole} decode requests"
    if density.decode > 1:
        yield f"decode sizes ({density.decode} times as far apart)"
    if extent.prefill_tokens is not None and widest.prefill_tokens is not None:
        missing = widest.prefill_tokens - extent.prefill_tokens
        if missing:
            yield f"PIECEWISE graphs of {missing} of {widest.prefill_tokens} prefill tokens"
    if density.prefill > 1:
        yield f"prefill sizes ({density.prefill} times as far apart)"


def _explicitly(choice: GraphChoice) -> str:
    return f"under `compilation`, {_written(choice.settings)} make the choice yours"


def _written(settings: Mapping[str, Any]) -> str:
    """Fields as lines of a spec."""
    return ", ".join(f"`{name}: {value}`" for name, value in settings.items())


def _smaller_graphs(subject: Findable, ledger: Ledger) -> str:
    """Of a search that holds no sizes there is nothing narrower; what is written can be lowered."""
    graphs = ledger.of(Part.GRAPHS)
    raised = f"`memory.max_cudagraph_memory: {ceil(graphs.size / _MIB)}MiB`"
    if subject.alternative is not None:
        instead = _written(written_fields(subject.alternative.fields))
        return f"under `compilation`, write {instead} in place of the sizes there, or {raised}"
    widest = max((line for line in ledger.lines if line.part is Part.GRAPHS), key=lambda line: line.size)
    has_sizes = subject.choice is None or bool(written_fields(subject.choice.space.fields))
    lowered = "lower the caps under `compilation`, or " if has_sizes else ""
    return f"{lowered}write {raised}; most is `{widest.owner}`, {size_words(widest.size)}"


CHECKS: tuple[Check, ...] = (_fits, _graph_bound)
