"""Outputs of a graph and of two eager runs, bit for bit."""

from typing import Any

import pytest

from servespec.runtime.extension.replay_comparison import compare

torch: Any = pytest.importorskip("torch")


def of(*values: float, kind: str = "float32") -> Any:
    return torch.tensor(values, dtype=getattr(torch, kind))


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "int64"])
def test_equal_bits(kind: str) -> None:
    found = compare(of(1, 2, kind=kind), of(1, 2, kind=kind), of(1, 2, kind=kind))

    assert (found.equal, found.eager_reproduces, found.values, found.differing) == (True, True, 2, 0)


def test_the_largest_differences_are_absolute_and_relative() -> None:
    found = compare(of(100.0, 1.0, 5.0), of(101.0, 1.5, 5.0), of(101.0, 1.5, 5.0))

    assert (found.equal, found.eager_reproduces) == (False, True)
    assert (found.differing, found.largest_absolute) == (2, 1.0)
    assert found.largest_relative == pytest.approx(1 / 3)


def test_an_eager_run_that_does_not_reproduce_itself() -> None:
    found = compare(of(1.0), of(2.0), of(3.0))

    assert (found.equal, found.eager_reproduces) == (False, False)


def test_a_graph_can_be_equal_to_one_of_two_eager_runs() -> None:
    found = compare(of(2.0), of(2.0), of(3.0))

    assert (found.equal, found.eager_reproduces) == (True, False)


def test_bits_count_and_not_values() -> None:
    nan, zero = float("nan"), 0.0

    assert compare(of(nan), of(nan), of(nan)).equal
    signs = compare(of(zero), of(-zero), of(-zero))
    assert (signs.equal, signs.differing, signs.largest_absolute) == (False, 1, 0.0)


def test_what_is_no_number_is_counted_apart() -> None:
    found = compare(of(float("inf"), float("nan"), 1.0), of(1.0, 1.0, 1.25), of(1.0, 1.0, 1.25))

    assert (found.not_numbers, found.differing, found.largest_absolute) == (2, 3, 0.25)


def test_more_rows_than_are_compared_at_a_time() -> None:
    graph = torch.zeros(200, 3)
    eager = graph.clone()
    eager[150, 2] = 0.5

    found = compare(graph, eager, eager)

    assert (found.values, found.differing, found.largest_absolute, found.largest_relative) == (600, 1, 0.5, 1.0)


@pytest.mark.parametrize("other", [of(1.0, 2.0), of(1.0, kind="float16")])
def test_outputs_of_other_shapes_are_refused(other: Any) -> None:
    with pytest.raises(ValueError, match="different shapes or types"):
        compare(of(1.0), other, other)
