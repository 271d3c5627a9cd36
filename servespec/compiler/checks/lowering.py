"""What the way to the engine changes: buffers, dispatch, sizes that one list cannot express."""

from collections.abc import Iterator, Sequence

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable, sizing_place, with_extension
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.coverage import Ran
from servespec.compiler.graphs.dispatch import split_dispatcher, uniform_batch
from servespec.compiler.graphs.shape import Routine, Row, Runner, Shape, rows_of
from servespec.compiler.lower import Lowering
from servespec.diagnostics import Diagnostic
from servespec.units import Requests


def _output_buffer(subject: Findable) -> Iterator[Diagnostic]:
    full = max((s.tokens for s in subject.shapes if _target_full(s)), default=0)
    piecewise = max((s.tokens for s in subject.shapes if s.runner is Runner.TARGET and not _target_full(s)), default=0)
    if piecewise and full > piecewise and subject.lowering is Lowering.EXTENSION:
        message = f"the widest FULL graph has {full} tokens, the widest PIECEWISE one {piecewise}"
        help_text = "nothing to do: the extension captures that graph first, so that the buffer holds it"
        yield rules.P114.at(sizing_place(subject), message, help_text)


def _target_full(shape: Shape) -> bool:
    return shape.runner is Runner.TARGET and shape.mode is CudaGraphMode.FULL


def _ladder_misses(subject: Findable) -> Iterator[Diagnostic]:
    """Batches that have a FULL graph of their own tier which the engine's dispatch does not find."""
    if not subject.frame.tiers or subject.lowering not in (Lowering.LEGACY, Lowering.NONE):
        return
    missed = _missed(subject)
    if missed:
        first, last = missed[0], missed[-1]
        message = f"{len(missed)} batch sizes between {first} and {last} requests miss their FULL graph"
        help_text = with_extension(subject, "finds them") or "choose tiers whose K + 1 divide each other"
        yield rules.P115.at(subject.place("speculative", "dynamic"), message, help_text)


def _missed(subject: Findable) -> list[int]:
    own = split_dispatcher(s for s in subject.shapes if s.runner is Runner.TARGET)
    missed = []
    for covered in subject.coverage.decode:
        if covered.routine is not Routine.UNIFORM_DECODE or covered.ran not in (Ran.PIECEWISE, Ran.EAGER):
            continue
        for n in range(covered.from_requests, covered.to_requests + 1):
            shape = own.dispatch(uniform_batch(Requests(n), covered.query_len))
            if shape is not None and shape.mode is CudaGraphMode.FULL:
                missed.append(n)
    return missed


def _lowering_differs(subject: Findable) -> Iterator[Diagnostic]:
    if subject.lowering is not Lowering.LEGACY:
        return
    differences = row_differences(rows_of(subject.asked), subject.rows())
    if differences:
        message = f"under the legacy list {'; '.join(differences)}"
        place = subject.place("engine", "lowering")
        yield rules.P116.at(place, message, with_extension(subject, "captures what the fields ask for"))


def row_differences(asked: Sequence[Row], got: Sequence[Row]) -> list[str]:
    """Rows that capture other sizes than asked, in words."""
    by_name = {_row_name(row): row for row in got}
    words = []
    for row in asked:
        name = _row_name(row)
        other = by_name.pop(name, None)
        if other is None:
            words.append(f"`{name}` captures none of {_reach(row)}")
        elif other.sizes != row.sizes:
            words.append(f"`{name}` captures {_reach(other)}, not {_reach(row)}")
    return [*words, *(f"`{name}` captures {_reach(row)}, not asked for" for name, row in by_name.items())]


def _reach(row: Row) -> str:
    return f"{len(row.sizes)} sizes to {row.sizes[-1]}" if row.sizes else "no sizes"


def _row_name(row: Row) -> str:
    query_len = f" q={row.query_len}" if row.query_len else ""
    steps = f" K={row.draft_steps}" if row.draft_steps else ""
    return f"{row.runner} {row.routine}{query_len}{steps}"


CHECKS: tuple[Check, ...] = (
    _output_buffer,
    _ladder_misses,
    _lowering_differs,
)
