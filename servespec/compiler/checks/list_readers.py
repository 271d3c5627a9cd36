"""What the engine changes beside its graphs when the list it is given is not its own: one note a consequence."""

from collections.abc import Iterator

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable, sizing_place
from servespec.compiler.extension import can_take_extension
from servespec.compiler.facts.list_readers import SPLITS_FIELD, Matters
from servespec.compiler.list_effects import ListChange, effects, list_change, split_bound_tokens, splits_within_stock
from servespec.compiler.lower import Lowering
from servespec.diagnostics import Diagnostic, Rule


def _memory(subject: Findable) -> Iterator[Diagnostic]:
    yield from _finding(subject, Matters.MEMORY, rules.P123)


def _kernels(subject: Findable) -> Iterator[Diagnostic]:
    yield from _finding(subject, Matters.KERNELS, rules.P124)


def _start_up(subject: Findable) -> Iterator[Diagnostic]:
    yield from _finding(subject, Matters.START_UP, rules.P125)


def _finding(subject: Findable, matters: Matters, rule: Rule) -> Iterator[Diagnostic]:
    change = _change(subject)
    if change is None:
        return
    found = effects(change, matters)
    if found:
        message = f"{_lists(change)}: {'; '.join(found)}"
        yield rule.at(sizing_place(subject), message, _help(subject, change, matters))


def _change(subject: Findable) -> ListChange | None:
    """None where the engine has its own list, or none."""
    planned, stock = subject.token_list, subject.engines_list
    if subject.lowering not in (Lowering.EXTENSION, Lowering.LEGACY) or not planned or not stock or planned == stock:
        return None
    return list_change(subject.resolution, subject.lowering, subject.shapes, stock, planned)


def _lists(change: ListChange) -> str:
    planned, stock = change.planned, change.stock
    return (
        f"the engine is given {len(planned.sizes_tokens)} sizes to {planned.maximum} tokens "
        f"(stock: {len(stock.sizes_tokens)} to {stock.maximum})"
    )


def _help(subject: Findable, change: ListChange, matters: Matters) -> str:
    """Only accumulators have a fix: steps bounded by the extension, where that is less, or fewer splits."""
    fewer = splits_within_stock(change)
    if matters is not Matters.MEMORY or fewer is None:
        return ""
    bounded = split_bound_tokens(Lowering.EXTENSION, change.planned.maximum, subject.asked)
    if bounded < change.planned.split_bound_tokens and can_take_extension(subject.resolution):
        return f"`engine.lowering: extension` splits no step wider than its widest FULL graph, {bounded} tokens"
    return f"`attention.{SPLITS_FIELD}: {fewer}` keeps to stock's bytes, with fewer splits for long contexts"


CHECKS: tuple[Check, ...] = (
    _memory,
    _kernels,
    _start_up,
)
