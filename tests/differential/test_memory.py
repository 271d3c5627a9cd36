"""The groups and blocks of the KV cache, against the engine's own functions (``real_cache``)."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.kv_cache import KvLayer, KvRequest, kv_cache_of
from servespec.compiler.memory.line import Holder
from servespec.units import Bytes, Tokens
from tests.differential import engine_oracle as oracle
from tests.differential.engine_process import PYTHON, run

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with torch"),
]

_TARGET_LAYERS = [(256, None), (256, 128), (512, None), (384, 128)]
_DRAFTER_LAYERS = [(256, None), (512, None)]


def case(rng: random.Random) -> dict[str, Any]:
    """A pattern as models have them, repeated, and up to two layers of a drafter."""
    pattern = rng.choices(_TARGET_LAYERS, k=rng.randint(1, 3))
    return {
        "layers": [*pattern * rng.randint(1, 12), *rng.choices(_DRAFTER_LAYERS, k=rng.randint(0, 2))],
        "block": rng.choice([16, 32, 64]),
        "length": rng.randint(1, 50_000),
        "in_flight": rng.randint(1, 20_000),
        "keeps_windows": rng.random() < 0.8,
    }


def ours(asked: dict[str, Any]) -> dict[str, int]:
    request = KvRequest(max_model_len_tokens=Tokens(asked["length"]), in_flight_tokens=Tokens(asked["in_flight"]))
    layers = tuple(
        KvLayer(holder=Holder.TARGET, token_bytes=Bytes(token_bytes), window_tokens=window)
        for token_bytes, window in asked["layers"]
    )
    cache = kv_cache_of(layers, asked["block"], request, keeps_windows=asked["keeps_windows"])
    return {
        "groups": len(cache.groups),
        "block_bytes": cache.block_bytes,
        "request_blocks": cache.request_blocks,
    }


@pytest.mark.parametrize("root", oracle.available_roots(), ids=lambda root: root.name)
def test_groups_and_blocks_are_the_engines(root: Path) -> None:
    rng = random.Random(4)  # noqa: S311
    cases = [case(rng) for _ in range(600)]

    answers = run("real_cache.py", root, json.dumps(cases))

    assert max(answer["groups"] for answer in answers) > 3
    for asked, answer in zip(cases, answers, strict=True):
        assert ours(asked) == answer, asked
