"""Small faults put into servespec's graph modules, each of which the comparisons with the engine must find.

A copy of the modules that decide graphs is run with one piece of its text replaced; then the functions that
``test_matrix`` compares with run on a few dozen cases.  A fault that none of them sees is a gap in the tests.
Faults that change nothing are not listed: for instance any in the counts that are multiples of 16 and that the engine
adds to its list, because their tokens are all on the list anyway.
"""

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import pytest

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from tests.differential import engine_oracle as oracle
from tests.differential.sides import (
    DRAFTERS,
    MODULES,
    Answers,
    Case,
    DrafterCase,
    as_graph,
    batch_of,
    differences,
    drafters_of,
    engine_answers,
    frame_of,
    namespace,
    our_answers,
    real_graphs,
    target_steps,
    token_list,
)
from tests.differential.split_rules import (
    Fields,
    Rows,
    expected_rows,
    rows_of,
    smallest_graph,
    stock_of,
    with_uniform_decode,
)

ROOTS = oracle.available_roots()

pytestmark = [pytest.mark.engine, pytest.mark.skipif(not ROOTS, reason="no engine under .engines")]


class Mutant(NamedTuple):
    """``old`` stands once in the module."""

    module: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "graph_sizes", "WIDE_CEILING: Final = in_engine(Tokens(1024)", "WIDE_CEILING: Final = in_engine(Tokens(1023)"
    ),
    Mutant("graph_sizes", "\nCEILING: Final = in_engine(Tokens(512)", "\nCEILING: Final = in_engine(Tokens(511)"),
    Mutant("graph_sizes", "(WIDE_CEILING if wide else CEILING)", "(CEILING if wide else WIDE_CEILING)"),
    Mutant("graph_sizes", "STRIDES: Final = in_engine((8, 16)", "STRIDES: Final = in_engine((8, 8)"),
    Mutant("graph_sizes", "STRIDES: Final = in_engine((8, 16)", "STRIDES: Final = in_engine((16, 16)"),
    Mutant("graph_sizes", 'Tokens(32), "tokens"', 'Tokens(30), "tokens"'),
    Mutant("graph_sizes", "PREFILL_CAP: Final = _split(Tokens(8192)", "PREFILL_CAP: Final = _split(Tokens(8191)"),
    Mutant("graph_sizes", "DECODE_BUDGET: Final = _split(Tokens(4096)", "DECODE_BUDGET: Final = _split(Tokens(4095)"),
    Mutant("graph_sizes", "DECODE_EPSILON: Final = _split(0.065", "DECODE_EPSILON: Final = _split(0.06"),
    Mutant("graph_sizes", "PREFILL_EPSILON: Final = _split(0.035", "PREFILL_EPSILON: Final = _split(0.03"),
    Mutant("graph_sizes", "LINEAR_FROM: Final = _split(Tokens(4096)", "LINEAR_FROM: Final = _split(Tokens(2048)"),
    Mutant("grid", "requests ** (2 / 3)", "requests ** (1 / 2)"),
    Mutant("grid", "10 * self.epsilon", "9 * self.epsilon"),
    Mutant("grid", "2 * self.epsilon", "1 * self.epsilon"),
    Mutant("grid", "max(tokens, PREFILL_LINEAR_FROM.value)", "min(tokens, PREFILL_LINEAR_FROM.value)"),
    Mutant("grid", "min(cap_tokens, INTERACTIVITY_UP_TO.value) + 1", "INTERACTIVITY_UP_TO.value + 2"),
    Mutant("grid", "min(tokens, widest)", "widest"),
    Mutant("grid", "if tokens < 8:", "if tokens <= 8:"),
    Mutant("grid", "if tokens < 8:", "if tokens < 4:"),
    Mutant("grid", "floor_to_power_of_two(tokens) // 4", "floor_to_power_of_two(tokens) // 2"),
    Mutant("grid", "if tokens < 1024:", "if tokens <= 1024:"),
    Mutant("grid", "128 if tokens < 4096", "128 if tokens <= 4096"),
    Mutant("grid", "else 256", "else 128"),
    Mutant("grid", "(size // stride + 1) * stride", "size + stride"),
    Mutant("grid", "while size < cap:", "while size <= cap:"),
    Mutant("grid", "if cap >= 1:", "if cap > 1:"),
    Mutant("grid", "        yield cap", "        yield cap - 1"),
    Mutant("grid", "int(value).bit_length() - 1", "int(value).bit_length()"),
    Mutant("stock", "size <= request.max_num_batched_tokens}", "size < request.max_num_batched_tokens}"),
    Mutant(
        "stock",
        "min(request.max_num_batched_tokens, request.max_size",
        "max(request.max_num_batched_tokens, request.max_size",
    ),
    Mutant("stock", "if request.max_num_batched_tokens <= ceiling", "if request.max_num_batched_tokens < ceiling"),
    Mutant("stock", "if request.max_size is None:", "if True:"),
    Mutant("stock", "request.max_num_seqs * request.query_len * 2", "request.max_num_seqs * request.query_len"),
    Mutant("stock", "else (1, 2, 4)", "else (1, 2, 3, 4)"),
    Mutant("stock", "min(ceiling, INTERACTIVITY_UP_TO.value) + 1", "min(ceiling, INTERACTIVITY_UP_TO.value)"),
    Mutant("stock", "range(fine, min(last + 1, 256), fine)", "range(fine, min(last, 256), fine)"),
    Mutant("stock", "range(fine, min(last + 1, 256), fine)", "range(fine, min(last + 1, 248), fine)"),
    Mutant("stock", "range(256, last + 1, coarse)", "range(256, last, coarse)"),
    Mutant("stock", "range(256, last + 1, coarse)", "range(256 + coarse, last + 1, coarse)"),
    Mutant("stock", "*_stepped(widest), widest]", "*_stepped(widest)]"),
    Mutant("stock", "*_stepped(widest), widest]", "widest]"),
    Mutant("stock", "if size <= ceiling]", "if size < ceiling]"),
    Mutant("stock", "if request.query_len == 1:", "if request.query_len == 2:"),
    Mutant("stock", "min(widest, request.default_ceiling_tokens)", "max(widest, request.default_ceiling_tokens)"),
    Mutant("stock", "min(max_num_seqs * manager.query_len, max(sizes, default=0))", "max_num_seqs * manager.query_len"),
    Mutant("stock", "if size <= mixed_limit)", "if size < mixed_limit)"),
    Mutant("stock", "if size <= max_num_seqs * manager.query_len)", "if size < max_num_seqs * manager.query_len)"),
    Mutant("stock", "-(-size // query_len)", "size // query_len"),
    Mutant("stock", "if n * query_len <= limit_tokens", "if n * query_len < limit_tokens"),
    Mutant("stock", "and n <= max_num_seqs)", "and n < max_num_seqs)"),
    Mutant("stock", "and n <= max_num_seqs)", ")"),
    Mutant("tiers", "sorted(schedule)", "list(schedule)"),
    Mutant("tiers", "min(next_start - 1, max_num_seqs)", "min(next_start, max_num_seqs)"),
    Mutant("tiers", "min(next_start - 1, max_num_seqs)", "next_start - 1"),
    Mutant("tiers", "if start <= end:", "if start < end:"),
    Mutant("tiers", "min(k, num_speculative_tokens)", "k"),
    Mutant("tiers", "tiers[-1] = Tier(last.from_requests,", "tiers[-1] = Tier(tier.from_requests,"),
    Mutant(
        "tiers",
        "tiers[-1] = Tier(last.from_requests, tier.to_requests,",
        "tiers[-1] = Tier(last.from_requests, last.to_requests,",
    ),
    Mutant("tiers", "max(tier.to_requests, widest", "min(tier.to_requests, widest"),
    Mutant("tiers", "[*starts, max_num_seqs + 1]", "[*starts, max_num_seqs]"),
    Mutant("tiers", "1 + self.num_speculative_tokens", "max(1, self.num_speculative_tokens)"),
    Mutant("dispatch", "from bisect import bisect_left", "from bisect import bisect_right as bisect_left"),
    Mutant("dispatch", "at < len(self.groups)", "at + 1 < len(self.groups)"),
    Mutant(
        "dispatch",
        "(CudaGraphMode.FULL, CudaGraphMode.PIECEWISE)",
        "(CudaGraphMode.PIECEWISE, CudaGraphMode.FULL)",
    ),
    Mutant("dispatch", "shape.active_loras == batch.active_loras", "shape.active_loras <= batch.active_loras"),
    Mutant("dispatch", "shape.ubatches == batch.ubatches", "shape.ubatches <= batch.ubatches"),
    Mutant("dispatch", "shape.requests >= batch.requests", "shape.requests > batch.requests"),
    Mutant("dispatch", "if shape.query_len is not None and shape.query_len != batch.query_len", "if False"),
    Mutant("dispatch", "shape.max_query_len >= batch.max_query_len", "shape.max_query_len > batch.max_query_len"),
    Mutant("dispatch", "return batch.max_query_len is not None and", "return batch.max_query_len is None or"),
    Mutant("dispatch", "and shape.draft_steps in (None, batch.draft_steps)", ""),
    Mutant("dispatch", "Dispatcher({}, _by_lora_case(tuple(shapes)))", "split_dispatcher(shapes)"),
    Mutant("dispatch", "if shape.query_len == q)) + _by_lora_case(free)", "if shape.query_len == q))"),
    Mutant(
        "dispatch",
        "if shape.query_len == q)) + _by_lora_case(free)",
        "if (shape.query_len or 0) >= q)) + _by_lora_case(free)",
    ),
    Mutant("dispatch", "self.ladders.get(batch.query_len, self.fallback)", "self.fallback"),
    Mutant("split", "else min(limit_tokens, self.budget_tokens)", "else max(limit_tokens, self.budget_tokens)"),
    Mutant("split", "min(self.cap_requests, within // query_len)", "self.cap_requests"),
    Mutant("split", "min(self.cap_requests, within // query_len)", "within // query_len"),
    Mutant("split", "self.grid.sizes(Requests(min(most, widest)))", "self.grid.sizes(most)"),
    Mutant("split", "for n in self.counts if n >= widest)", "for n in self.counts if n > widest)"),
    Mutant("split", "if n <= min(most, reaching))", "if n < min(most, reaching))"),
    Mutant("split", "if n <= min(most, reaching))", "if n <= most)"),
    Mutant("split", "if n <= min(most, reaching))", "if n <= min(most, widest))"),
    Mutant("split", "if t <= step_tokens}", "if t < step_tokens}"),
    Mutant("split", "grid.sizes(min(fields.prefill_cap_tokens, step_tokens))", "grid.sizes(fields.prefill_cap_tokens)"),
    Mutant(
        "split",
        "grid.sizes(min(PREFILL_CAP.value, step_tokens))",
        "grid.sizes(PREFILL_CAP.value)",
    ),
    Mutant("split", "PrefillGrid(every_small_count=defaults.every_small_count)", "PrefillGrid()"),
    Mutant("split", "if n <= frame.max_num_seqs}", "if n < frame.max_num_seqs}"),
    Mutant("split", "cap_requests=max(kept, default=Requests(0))", "cap_requests=min(kept, default=Requests(0))"),
    Mutant("split", "min(fields.decode_cap_requests, frame.max_num_seqs)", "fields.decode_cap_requests"),
    Mutant("split", "cap = max(counts, default=Requests(0))", "cap = min(counts, default=Requests(0))"),
    Mutant("split", "counts=None if defaults.decode_grid_off_wide else counts", "counts=counts"),
    Mutant(
        "split",
        "later if manager.decode is Routine.LATER_STEPS else",
        "source if manager.decode is Routine.LATER_STEPS else",
    ),
    Mutant("split", "mixed_limit is None or t <= mixed_limit", "mixed_limit is None or t < mixed_limit"),
    Mutant(
        "split",
        "min(source.cap_requests * manager.query_len, frame.max_num_batched_tokens)",
        "source.cap_requests * manager.query_len",
    ),
    Mutant(
        "split",
        "min(source.cap_requests * manager.query_len, frame.max_num_batched_tokens)",
        "source.cap_requests",
    ),
    Mutant("split", "recorded_tokens // manager.query_len", "recorded_tokens"),
    Mutant("split", "or manager.mixed is not None:", "or manager.mixed is None:"),
    Mutant("split", "disabled = fields.decode_sizes_requests == ()", "disabled = False"),
    Mutant(
        "split",
        "cap_requests=cap, counts=None, budget_tokens=source.budget_tokens)",
        "cap_requests=cap, counts=None, budget_tokens=None)",
    ),
    Mutant("split", "if fields.unlimited_budget:", "if False:"),
    Mutant("split", "return DECODE_BUDGET.value if defaults.wide else None", "return DECODE_BUDGET.value"),
    Mutant("split", "cap = min(reach, frame.max_num_seqs)", "cap = reach"),
    Mutant(
        "split",
        "counts = {*_stock_counts(frame, stock), cap} - {0}",
        "counts = {*_stock_counts(frame, stock)} - {0}",
    ),
    Mutant("split", "stock.maximum, Requests(stock.maximum))", "stock.maximum, frame.max_num_seqs)"),
    Mutant("split", "CudaGraphMode.NONE if no_prefill else", "CudaGraphMode.NONE if no_decode else"),
    Mutant("split", "CudaGraphMode.NONE if no_decode else", "CudaGraphMode.NONE if no_prefill else"),
    Mutant(
        "split",
        "return CudaGraphMode.FULL_AND_PIECEWISE if both",
        "return CudaGraphMode.FULL_AND_PIECEWISE if not both",
    ),
    Mutant("inventory", "for case in manager.lora_cases:", "for case in (0,):"),
    Mutant("inventory", "yield from _microbatch_twin(with_case, manager.microbatching)", "pass"),
    Mutant("inventory", "_captured_mixed_mode(manager) is not CudaGraphMode.NONE:", "True:"),
    Mutant("inventory", "if manager.mode.separate_routine() and", "if"),
    Mutant("inventory", "bound = Requests(min(tokens, max_num_seqs))", "bound = Requests(tokens)"),
    Mutant("inventory", "if mode is CudaGraphMode.FULL else None", "if mode is not CudaGraphMode.FULL else None"),
    Mutant("inventory", "requests=Requests(min(tokens, max_num_seqs)),", "requests=Requests(max_num_seqs),"),
    Mutant("inventory", "max_query_len=manager.query_len,", "max_query_len=manager.query_len + 1,"),
    Mutant("inventory", "tokens=Tokens(requests * query_len),", "tokens=Tokens(requests * manager.query_len),"),
    Mutant("inventory", "in manager.draft_steps or (None,):", "in (None,):"),
    Mutant("inventory", "if remainder or", "if"),
    Mutant(
        "inventory",
        "shape.tokens >= max(rule.count, rule.threshold_tokens)",
        "shape.tokens > max(rule.count, rule.threshold_tokens)",
    ),
    Mutant(
        "inventory",
        "shape.tokens >= max(rule.count, rule.threshold_tokens)",
        "shape.tokens >= min(rule.count, rule.threshold_tokens)",
    ),
    Mutant("managers", "query_len > frame.num_speculative_tokens", "query_len >= frame.num_speculative_tokens"),
    Mutant("managers", "if frame.num_speculative_tokens < 2:", "if frame.num_speculative_tokens < 1:"),
    Mutant("managers", "for tier in frame.tiers} - {0, 1}", "for tier in frame.tiers} - {0}"),
    Mutant("managers", "bool(frame.tiers) and frame.drafter.fused_later_steps", "bool(frame.tiers)"),
    Mutant("managers", "TokensPerRequest(k + extra)", "TokensPerRequest(k)"),
)


# -- What is compared -------------------------------------------------------------------------------------

TIERS_7_3_1 = ((1, 16, 7), (17, 64, 3), (65, 200, 1))
INTERLEAVED = ((1, 8, 5), (9, 24, 3), (25, 64, 1))
OUT_OF_ORDER = ((9, 12, 0), (1, 8, 4), (20, 20, 9), (21, 40, 4))
EVERY_SIZE = tuple(range(1, 80, 3))
POWERS_OF_TWO = tuple(1 << exponent for exponent in range(10))

CASES = (
    Case(True, 100, 8192, 2),
    Case(True, 300, 8192, 2, mode="PIECEWISE"),
    Case(False, 100, 300, 5),
    Case(False, 8, 8192, 5, sizes=POWERS_OF_TWO),
    Case(False, 6, 8192, 6, max_size=42),
    Case(True, 600, 8192, 0, mode="FULL_DECODE_ONLY"),
    Case(False, 40, 256, 3, sizes=(*EVERY_SIZE, 256, 300)),
    Case(False, 1, 64, 1),
    Case(False, 33, 2048, 1),
    Case(False, 20, 2048, 0, performance_mode="interactivity"),
    Case(False, 10, 2048, 0, performance_mode="interactivity"),
    Case(False, 72, 2048, 0, lora_cases=(0, 1, 2, 5), mode="FULL"),
    Case(False, 72, 2048, 0, lora_cases=(0, 1, 5), ubatches=True),
    Case(False, 24, 2048, 0, ubatches=True, mode="FULL"),
    Case(False, 11, 2048, 3, within_decode_width=True),
    Case(False, 30, 2048, 3, mode="FULL"),
    Case(False, 33, 2048, 5, adaptive_verification=True),
    Case(False, 33, 2048, 3, sizes=EVERY_SIZE, adaptive_verification=True, mode="FULL_DECODE_ONLY"),
    Case(False, 100, 8192, 7, TIERS_7_3_1),
    Case(False, 40, 8192, 7, ((1, 16, 7), (17, 61, 3), (62, 200, 1))),
    Case(True, 64, 8192, 5, INTERLEAVED),
    Case(False, 40, 8192, 4, OUT_OF_ORDER),
    Case(False, 40, 8192, 3, ((1, 4, 3), (5, 8, 1), (9, 40, 3))),
    Case(False, 40, 8192, 3, ((1, 4, 2), (5, 8, 2), (9, 40, 0))),
    Case(False, 40, 8192, 3, ((1, 4, 3), (5, 5, 1), (6, 40, 2))),
)


class SplitCase(NamedTuple):
    """``own_ceiling``: the list's maximum is the model's hook's, and the decode grid replaces the list's counts."""

    case: Case
    fields: Fields = Fields()
    own_ceiling: bool = False


WIDE, NARROW = Case(True, 1024, 16384, 7), Case(False, 100, 2048, 5)
SPLIT_CASES = (
    SplitCase(WIDE),
    SplitCase(WIDE._replace(k=0)),
    SplitCase(WIDE._replace(k=5, adaptive_verification=True)),
    SplitCase(WIDE._replace(schedule=TIERS_7_3_1)),
    SplitCase(WIDE._replace(max_num_batched_tokens=2048, adaptive_verification=True)),
    SplitCase(WIDE._replace(performance_mode="interactivity")),
    SplitCase(WIDE._replace(max_num_seqs=64, k=5, schedule=INTERLEAVED)),
    SplitCase(WIDE._replace(max_size=1024)),
    SplitCase(WIDE._replace(max_size=8192)),
    SplitCase(WIDE._replace(max_num_seqs=1, k=1)),
    SplitCase(WIDE, Fields(unlimited=True)),
    SplitCase(WIDE, Fields(budget=500)),
    SplitCase(WIDE, Fields(prefill_cap=6000, decode_cap=77)),
    SplitCase(WIDE, Fields(prefill_cap=128, decode_cap=2000)),
    SplitCase(WIDE, Fields(decode_list=(), prefill_cap=100)),
    SplitCase(Case(True, 64, 16384, 5, adaptive_verification=True), Fields(decode_cap=100)),
    SplitCase(NARROW),
    SplitCase(Case(False, 1024, 8192, 7), Fields(decode_cap=1000)),
    SplitCase(NARROW._replace(k=3, mode="PIECEWISE")),
    SplitCase(NARROW._replace(within_decode_width=True, max_num_seqs=11, k=3)),
    SplitCase(NARROW._replace(within_decode_width=True, max_num_seqs=11, k=3, mode="FULL")),
    SplitCase(NARROW._replace(k=7, schedule=TIERS_7_3_1)),
    SplitCase(NARROW._replace(k=3, schedule=((1, 4, 3), (5, 8, 1), (9, 40, 3)))),
    SplitCase(NARROW._replace(max_num_seqs=8, sizes=POWERS_OF_TWO)),
    SplitCase(NARROW._replace(sizes=POWERS_OF_TWO, adaptive_verification=True)),
    SplitCase(NARROW._replace(max_size=1024), own_ceiling=True),
    SplitCase(NARROW, Fields(prefill_list=(5, 70, 2048, 3000), decode_list=(1, 9, 33, 100, 120))),
    SplitCase(NARROW, Fields(prefill_cap=5000, decode_cap=60, budget=128)),
    SplitCase(NARROW._replace(k=7, schedule=TIERS_7_3_1), Fields(decode_list=(3, 16, 20, 40, 80))),
)


class Expected(NamedTuple):
    """The engine's answers, and the split rows that the rules give; computed once."""

    answers: tuple[tuple[Case, Answers], ...]
    rows: tuple[tuple[SplitCase, str | None, Rows], ...]


@cache
def expected() -> Expected:
    root = ROOTS[0]
    return Expected(
        tuple((case, engine_answers(root, case)) for case in CASES),
        tuple(row for split in SPLIT_CASES for row in _expected_rows(root, split)),
    )


def _expected_rows(root: Path, split: SplitCase) -> Iterator[tuple[SplitCase, str | None, Rows]]:
    case = split.case
    stock = stock_of(engine_answers(root, with_uniform_decode(case), with_drafters=False))
    # A maximum that a model's hook sets is no legacy field of the user's.
    asked = case._replace(max_size=None) if split.own_ceiling else case
    for name in (None, *drafters_of(case)):
        drafter = DRAFTERS[name] if name else None
        yield split, name, expected_rows(asked, split.fields, drafter, stock, case.sm100, split.own_ceiling)


def first_difference(graphs: Any) -> str | None:
    """What differs between these modules and the engine or the rules; None where nothing does."""
    return next(all_differences(graphs), None)


def all_differences(graphs: Any) -> Iterator[str]:
    for case, answers in expected().answers:
        yield from (f"{case}: {name}" for name in differences(our_answers(graphs, case), answers))
    for split, drafter, rows in expected().rows:
        yield from (f"{split}, {drafter}: {what}" for what in split_differences(graphs, split, drafter, rows))
    yield from kind_differences(graphs)


def split_differences(graphs: Any, split: SplitCase, drafter: str | None, rows: Rows) -> Iterator[str]:
    shapes = split_shapes(graphs, split, DRAFTERS[drafter] if drafter else None)
    if len(set(shapes)) != len(shapes):
        yield "a graph twice"
    if rows_of(graphs.shape.rows_of(shapes)) != rows:
        yield "rows"
    if drafter is None:
        yield from dispatch_differences(graphs, split.case, shapes)


def split_shapes(graphs: Any, split: SplitCase, drafter: DrafterCase | None) -> tuple[Any, ...]:
    case, fields = split.case, split.fields
    legacy_max = None if split.own_ceiling else case.max_size
    shapes: tuple[Any, ...] = graphs.split.split_shapes(
        frame_of(graphs, case, drafter),
        graphs.split.CaptureFields(
            prefill_cap_tokens=fields.prefill_cap,
            prefill_sizes_tokens=fields.prefill_list,
            decode_cap_requests=fields.decode_cap,
            decode_sizes_requests=fields.decode_list,
            decode_budget_tokens=fields.budget,
            unlimited_budget=fields.unlimited,
            legacy_sizes_tokens=case.sizes,
            legacy_max_tokens=legacy_max,
        ),
        graphs.split.SizeDefaults(
            wide=case.sm100,
            decode_grid_off_wide=split.own_ceiling,
            every_small_count=case.performance_mode == "interactivity",
        ),
        token_list(graphs, case),
    )
    return shapes


def dispatch_differences(graphs: Any, case: Case, shapes: tuple[Any, ...]) -> Iterator[str]:
    """Our own dispatch rule against a search through all graphs."""
    dispatcher = graphs.dispatch.split_dispatcher(shapes)
    plain = [as_graph(shape) for shape in shapes]
    for step in target_steps(case)[:: max(1, case.max_num_seqs // 60)]:
        found = dispatcher.dispatch(batch_of(graphs, step))
        best = smallest_graph(plain, step.requests, step.tokens, step.uniform, step.widest)
        if (None if found is None else as_graph(found)) != best:
            yield f"dispatch of {step}"


_KINDS = {
    (True, False): {"FULL_AND_PIECEWISE": "FULL_DECODE_ONLY", "PIECEWISE": "NONE", "FULL": "NONE"},
    (False, True): {"FULL_AND_PIECEWISE": "PIECEWISE", "FULL_DECODE_ONLY": "NONE"},
    (True, True): dict.fromkeys(("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "PIECEWISE", "FULL"), "NONE"),
    (False, False): {},
}
"""What is left of a mode when prefill, decode or both are disabled by an empty list."""


def kind_differences(graphs: Any) -> Iterator[str]:
    for (no_prefill, no_decode), mode in product(_KINDS, CudaGraphMode):
        fields = graphs.split.CaptureFields(
            prefill_sizes_tokens=() if no_prefill else None, decode_sizes_requests=() if no_decode else None
        )
        left = graphs.split.resolved_kinds(mode, fields).value
        if left != _KINDS[no_prefill, no_decode].get(mode.value, mode.value):
            yield f"{mode} without prefill: {no_prefill}, without decode: {no_decode}"


# -- A copy of the package --------------------------------------------------------------------------------

_COPY = "a_copy_of_the_graph_modules"


def short(module: str) -> str:
    return module.rpartition(".")[2]


def source_of(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None, module
    assert found.origin is not None, module
    return Path(found.origin).read_text(encoding="utf-8")


def compiled_copy(module: str, source: str) -> CodeType:
    """The code of a module whose imports of the others find their copies."""
    for name in MODULES:
        source = re.sub(rf"\bfrom {re.escape(name)} import", f"from {_COPY}.{short(name)} import", source)
    return compile(source, f"<copy of {module}>", "exec", dont_inherit=True)


@cache
def unchanged(module: str) -> CodeType:
    return compiled_copy(module, source_of(module))


def copy_of_graphs(mutant: Mutant | None) -> Any:
    """The modules as a namespace, with the mutant's text in place of the original's."""
    modules = {name: ModuleType(f"{_COPY}.{short(name)}") for name in MODULES}
    sys.modules.update({module.__name__: module for module in modules.values()})
    try:
        for name, module in modules.items():
            code = changed(mutant, name) if mutant and mutant.module == short(name) else unchanged(name)
            exec(code, vars(module))  # noqa: S102 - running the changed text is the purpose
    finally:
        for module in modules.values():
            sys.modules.pop(module.__name__)
    return namespace(modules.values())


def changed(mutant: Mutant, module: str) -> CodeType:
    source = source_of(module)
    assert source.count(mutant.old) == 1, f"{mutant.old!r} stands {source.count(mutant.old)} times in {module}"
    return compiled_copy(module, source.replace(mutant.old, mutant.new))


# -- The tests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graphs", [real_graphs(), copy_of_graphs(None)], ids=["the modules", "an unchanged copy"])
def test_nothing_differs_without_a_fault(graphs: Any) -> None:
    assert list(all_differences(graphs)) == []


def test_a_copy_is_made_of_copies() -> None:
    graphs = copy_of_graphs(None)

    assert {module.__name__.partition(".")[0] for module in vars(graphs).values()} == {_COPY}
    assert graphs.split.DecodeGrid is graphs.grid.DecodeGrid
    assert graphs.split.DecodeGrid is not real_graphs().grid.DecodeGrid
    assert graphs.grid.DECODE_EPSILON is graphs.graph_sizes.DECODE_EPSILON


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.module}: {mutant.old} -> {mutant.new}")
def test_a_fault_is_found(mutant: Mutant) -> None:
    graphs = copy_of_graphs(mutant)
    try:
        found = first_difference(graphs)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        found = f"raises {error!r}"

    assert found is not None
