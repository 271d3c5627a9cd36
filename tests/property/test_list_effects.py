"""Accumulators of split attention: linear in what they are made of; the extension never splits more than the list."""

from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.list_readers import split_accumulator_bytes, triton_threshold_requests
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.compiler.list_effects import split_bound_tokens
from servespec.compiler.lower import Lowering
from servespec.units import Requests, Tokens

COUNTS = st.integers(1, 512)
TOKENS = st.integers(1, 16384).map(Tokens)
LISTS = st.sets(TOKENS, min_size=1).map(lambda sizes: tuple(sorted(sizes)))
MODES = st.sampled_from([CudaGraphMode.FULL, CudaGraphMode.PIECEWISE])


def shape(tokens: Tokens, mode: CudaGraphMode) -> Shape:
    full = mode is CudaGraphMode.FULL
    return Shape(
        runner=Runner.TARGET,
        routine=Routine.UNIFORM_DECODE if full else Routine.PIECEWISE,
        mode=mode,
        tokens=tokens,
        requests=Requests(tokens) if full else None,
    )


SHAPES = st.lists(st.builds(shape, TOKENS, MODES)).map(tuple)


@given(COUNTS, COUNTS, TOKENS, COUNTS, st.integers(2, 8))
def test_accumulators_are_linear(splits: int, heads: int, tokens: Tokens, width: int, factor: int) -> None:
    def size(**changed: int) -> int:
        given = {"splits": splits + 1, "heads": heads, "tokens": tokens, "value_width": width}
        return split_accumulator_bytes(**{**given, **changed})  # type: ignore[arg-type]

    for name, value in (("splits", splits + 1), ("heads", heads), ("tokens", tokens)):
        assert size(**{name: value * factor}) == factor * size()
    assert size(value_width=width + 1) - size() == (splits + 1) * heads * tokens * 4


@given(st.integers(-1, 1), COUNTS, TOKENS, COUNTS)
def test_one_split_accumulates_nothing(splits: int, heads: int, tokens: Tokens, width: int) -> None:
    assert split_accumulator_bytes(splits=splits, heads=heads, tokens=tokens, value_width=width) == 0


@given(st.sampled_from(list(Lowering)), TOKENS, SHAPES)
def test_the_bound_of_splits(lowering: Lowering, maximum: Tokens, shapes: tuple[Shape, ...]) -> None:
    bound = split_bound_tokens(lowering, maximum, shapes)
    full = [one.tokens for one in shapes if one.mode is CudaGraphMode.FULL and one.tokens <= maximum]

    assert bound <= maximum
    assert bound == maximum or lowering is Lowering.EXTENSION
    assert all(tokens <= bound for tokens in full)
    assert lowering is not Lowering.EXTENSION or bound in {0, maximum, *full}
    assert lowering is not Lowering.EXTENSION or bound == 0 or any(one.tokens >= bound for one in shapes)


@given(LISTS, st.integers(1, 128))
def test_no_entry_is_nearer_than_tritons_threshold(sizes: tuple[Tokens, ...], kv_heads: int) -> None:
    threshold, wanted = triton_threshold_requests(sizes, kv_heads), 128 // kv_heads

    assert threshold in sizes
    assert all(abs(threshold - wanted) <= abs(size - wanted) for size in sizes)
