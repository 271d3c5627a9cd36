"""Where adaptive verification has graphs: dense, as far as a step reaches, or powers of two and whole decodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.graphs.grid import DecodeGrid, adaptive_verification_sizes, sparse_verification_sizes
from servespec.units import Requests, Tokens, TokensPerRequest
from tests.plans import Json, codes_of, compiled, model_folder, planned, row_of, spec_of
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

DSPARK = {"method": "dspark", "num_speculative_tokens": 5, "enable_adaptive_verification": True}


def spec(grid: str | None, **sections: object) -> Json:
    compilation = {} if grid is None else {"compilation": {"adaptive_verification_grid": grid}}
    given = {"speculative": DSPARK, "engine": EXTENSION, **compilation, **sections}
    return spec_of("deepseek-v4-flash", "gb200", **given)


def sizes(grid: str | None) -> list[int]:
    found: list[int] = row_of(compiled(spec(grid)).to_json(), "adaptive_verification")["sizes"]
    return found


@given(st.integers(1, 9000), st.integers(1, 17))
def test_sparse_sizes_are_powers_of_two_and_whole_decodes(cap: int, query_len: int) -> None:
    found = sparse_verification_sizes(Tokens(cap), TokensPerRequest(query_len))

    assert list(found) == sorted(set(found))
    assert (found[0], found[-1]) == (1, cap)
    counts = DecodeGrid().sizes(Requests(cap // query_len))
    assert set(found) >= {count * query_len for count in counts}
    for size in set(found) - {cap}:
        assert size & (size - 1) == 0 or (size % query_len == 0 and size // query_len in counts)


def test_without_a_choice_the_grid_is_dense() -> None:
    assert sizes(None) == sizes("dense") == list(adaptive_verification_sizes(Tokens(6144)))


def test_reachable_is_the_dense_grid_without_what_no_step_holds() -> None:
    """Of a vocabulary of 129,280 a step verifies 2,076 tokens at most; 2,176 is the first size that holds them."""
    dense, reachable = sizes("dense"), sizes("reachable")

    assert reachable == [size for size in dense if size <= 2176]
    assert "P104" in codes_of(planned(spec("dense")))
    assert "P104" not in codes_of(planned(spec("reachable")))


def test_every_batch_runs_from_the_same_kind_of_graph_on_every_grid() -> None:
    def decode(grid: str) -> list[tuple[int, int, str]]:
        covered = compiled(spec(grid)).to_json()["coverage"]["decode"]
        rows = [one for one in covered if one["routine"] == "adaptive_verification"]
        return [(rows[0]["from_requests"], rows[-1]["to_requests"], mode) for mode in {one["mode"] for one in rows}]

    assert decode("dense") == decode("reachable") == decode("sparse") == [(1, 1024, "FULL")]


def test_a_plan_says_what_the_choice_saves_and_risks() -> None:
    (sparse,) = [one for one in compiled(spec("sparse")).diagnostics if one.code == "P146"]
    (reachable,) = [one for one in compiled(spec("reachable")).diagnostics if one.code == "P146"]

    assert f"`sparse` has {len(sizes('sparse'))} sizes" in sparse.message
    assert "less by formula" in sparse.message
    assert "0.25%" in sparse.help
    assert "nothing is lost" in reachable.help
    assert "P113" not in {one.code for one in compiled(spec("sparse")).diagnostics}


def test_a_choice_that_changes_nothing_is_not_a_saving() -> None:
    """Of 64 requests a step verifies 384 tokens at most, where both grids end."""
    few = {"scheduler": {"max_num_seqs": 64}}
    assert row_of(compiled(spec("reachable", **few)).to_json(), "adaptive_verification")["sizes"][-1] == 384
    assert "P146" not in codes_of(planned(spec("reachable", **few)))


def test_a_grid_without_adaptive_verification_is_told() -> None:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    given = spec_of("qwen3-8b", "h200", speculative=draft, compilation={"adaptive_verification_grid": "sparse"})

    (finding,) = [one for one in compiled(given).diagnostics if one.code == "S229"]

    assert (finding.severity, "enable_adaptive_verification: true" in finding.help) == ("warning", True)
