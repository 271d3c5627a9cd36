"""Lifted text against the imported engine: the same questions, asked of both, must get the same answers.

Needs an interpreter with torch (``engine_process``), no GPU and none of the engine's compiled modules.
"""

import functools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.differential import engine_oracle as oracle
from tests.differential.engine_oracle import Graph, Refusal
from tests.differential.engine_process import PYTHON, installed_root, run
from tests.differential.stand_ins import Machine, Speculation

pytestmark = pytest.mark.engine

INSTALLED = "installed"
SEED = 20260
CASES = 200

Request = dict[str, Any]


@functools.cache
def asked(source: str, requests: str) -> Any:
    """The answers of the engine at ``source`` (a root, or the interpreter's own) to ``requests``."""
    return run("real_engine.py", None if source == INSTALLED else Path(source), requests)


def sources() -> Iterator[Any]:
    if PYTHON is None:
        yield pytest.param("", marks=pytest.mark.skip(reason="no interpreter with torch"), id="none")
        return
    for root in oracle.available_roots():
        yield pytest.param(str(root), id=root.name)
    if installed_root():
        yield pytest.param(INSTALLED, id=INSTALLED)


@pytest.fixture(params=sources())
def compared(request: pytest.FixtureRequest) -> tuple[Path, Any]:
    """The root that lane A reads, and the answers of the engine imported from it."""
    source: str = request.param
    answers = asked(source, json.dumps(every_request()))
    return (installed_root() or Path()) if source == INSTALLED else Path(source), answers


@functools.cache
def every_request() -> list[Request]:
    rng = random.Random(SEED)  # noqa: S311 - test data
    makers = (size_request, manager_request, drafter_request, mode_request, default_request, lora_request)
    return [maker(rng) for maker in makers for _ in range(CASES)]


def schedule_of(rng: random.Random, k: int, max_num_seqs: int) -> list[list[int]] | None:
    if k == 0 or rng.random() < 0.5:
        return None
    starts = sorted({1, *(rng.randint(2, max_num_seqs + 8) for _ in range(rng.randint(0, 3)))})
    ends = [start - 1 for start in starts[1:]] + [max_num_seqs + 8]
    return [[start, end, rng.randint(0, k + 1)] for start, end in zip(starts, ends, strict=True)]


def token_list(rng: random.Random) -> list[int]:
    return sorted(rng.sample(range(1, 130), rng.randint(1, 20)))


def size_request(rng: random.Random) -> Request:
    k, max_num_seqs = rng.choice([0, 1, 2, 3, 5, 7, 15]), rng.randint(1, 1100)
    return {
        "ask": "stock_capture_sizes",
        "with": {
            "sm100": rng.random() < 0.5,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": rng.choice([rng.randint(2200, 20000), rng.randint(1100, 2000)]),
            "num_speculative_tokens": k,
            "schedule": schedule_of(rng, k, max_num_seqs),
            "mode": rng.choice(["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]),
            "performance_mode": rng.choice(["balanced", "interactivity", "throughput"]),
            "max_size": rng.choice([None, None, rng.randint(1, 3000)]),
            "sizes": rng.choice([None, None, token_list(rng)]),
        },
    }


def manager_request(rng: random.Random) -> Request:
    k, sizes, max_num_seqs = rng.choice([0, 1, 2, 3, 5, 7]), token_list(rng), rng.randint(1, 140)
    q = rng.choice([1, 1 + k])
    uniform = [[n, n * q, q, 0, q, 1] for n in (rng.randint(1, max_num_seqs) for _ in range(10))]
    mixed = [
        [rng.randint(1, max_num_seqs), rng.randint(0, 140), None, rng.randint(0, 6), rng.choice([None, q]), u]
        for u in (1, 1, 1, 1, 2)
    ]
    return {
        "ask": "stock_manager",
        "with": {
            "sizes": sizes,
            "max_size": sizes[-1],
            "max_num_seqs": max_num_seqs,
            "mode": rng.choice(["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]),
            "decode_query_len": q,
            "num_speculative_tokens": k,
            "schedule": schedule_of(rng, k, max_num_seqs),
            "lora_cases": rng.choice([[0], [0, 5], [0, 1, 2, 4, 5]]),
            "varlen_decode": rng.random() < 0.25,
            "ubatches": rng.random() < 0.25,
            "steps": uniform + mixed,
        },
    }


def drafter_request(rng: random.Random) -> Request:
    k, sizes, max_num_seqs = rng.randint(1, 7), token_list(rng), rng.randint(1, 140)
    name, query_len = rng.choice(
        [
            ("EagleSpeculator", None),
            ("MTPSpeculator", None),
            ("MultiModuleMTPSpeculator", None),
            ("DFlashSpeculator", 1 + k),
            ("DSparkSpeculator", k),
            ("DSparkSpeculator", 1 + k),
        ]
    )
    return {
        "ask": "drafter_managers",
        "with": {
            "name": name,
            "num_speculative_tokens": k,
            "num_query_per_req": query_len,
            "schedule": schedule_of(rng, k, max_num_seqs),
            "sizes": sizes,
            "max_size": sizes[-1],
            "max_num_seqs": max_num_seqs,
            "mode": rng.choice(["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]),
            "breakable_graphs": rng.random() < 0.5,
            "draft_support": rng.choice(["ALWAYS", "UNIFORM_BATCH", "UNIFORM_SINGLE_TOKEN_DECODE", "NEVER"]),
            "in_place_metadata": rng.random() < 0.5,
        },
    }


def mode_request(rng: random.Random) -> Request:
    return {
        "ask": "resolve_mode",
        "with": {
            "mode": rng.choice(["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]),
            "support": rng.choice(["ALWAYS", "UNIFORM_BATCH", "UNIFORM_SINGLE_TOKEN_DECODE", "NEVER"]),
            "decode_query_len": rng.choice([1, 4]),
            "compiled": rng.random() < 0.5,
            "splitting_ops_contain_attention": rng.random() < 0.5,
            "piecewise_capture_available": rng.random() < 0.5,
        },
    }


def default_request(rng: random.Random) -> Request:
    return {
        "ask": "batch_defaults",
        "with": {
            "memory_bytes": rng.randint(10, 300) << 30,
            "name": rng.choice(["NVIDIA A100-SXM4-80GB", "NVIDIA H200", "NVIDIA GB10"]),
            "capability": rng.choice([[8, 0], [9, 0], [10, 0], [12, 1]]),
            "max_model_len": rng.choice([4, 448, 4096, 131072]),
            "usage": rng.choice(["LLM_CLASS", "OPENAI_API_SERVER", "ENGINE_CONTEXT"]),
            "max_num_seqs": rng.choice([None, rng.randint(1, 4000)]),
            "max_num_batched_tokens": rng.choice([None, rng.randint(1, 40000)]),
            "performance_mode": rng.choice(["balanced", "interactivity", "throughput"]),
            "enable_chunked_prefill": rng.random() < 0.5,
        },
    }


def lora_request(rng: random.Random) -> Request:
    return {
        "ask": "lora_cases",
        "with": {
            "max_loras": rng.randint(1, 40),
            "specialize_active_lora": rng.random() < 0.5,
            "cudagraph_specialize_lora": rng.random() < 0.5,
        },
    }


def lifted_sizes(root: Path, **arguments: Any) -> Any:
    return oracle.stock_capture_sizes(root, **arguments)


def lifted_manager(root: Path, steps: list[list[Any]], **arguments: Any) -> Any:
    manager = oracle.stock_manager(root, **arguments)
    assert manager.captured() == manager.descs
    return {"descs": list(manager.descs), "dispatched": [manager.dispatch(*step) for step in steps]}


_METHODS = {
    "EagleSpeculator": "eagle3",
    "MTPSpeculator": "mtp",
    "MultiModuleMTPSpeculator": "mtp",
    "DFlashSpeculator": "dflash",
    "DSparkSpeculator": "dspark",
}


def lifted_drafter(
    root: Path,
    name: str,
    num_speculative_tokens: int,
    num_query_per_req: int | None,
    schedule: list[list[int]] | None,
    **arguments: Any,
) -> Any:
    draft_config: dict[str, Any] = {}
    if name == "MultiModuleMTPSpeculator":
        draft_config["num_nextn_predict_layers"] = num_speculative_tokens
    if name == "DSparkSpeculator":
        draft_config["sample_from_anchor"] = num_query_per_req == num_speculative_tokens
    speculation = Speculation(
        num_speculative_tokens=num_speculative_tokens,
        method=_METHODS[name],
        schedule=None if schedule is None else [(a, b, k) for a, b, k in schedule],
        draft_config=draft_config,
    )
    managers = oracle.drafter_managers(root, speculation, **arguments)
    return {
        key: {
            "mode": manager.mode,
            "decode_query_len": manager.decode_query_len,
            "planned": list(manager.planned),
            "captured_full": [graph for graph in manager.captured if graph.mode == "FULL"],
        }
        for key, manager in managers.items()
    }


def lifted_defaults(root: Path, memory_bytes: int, name: str, capability: list[int], **arguments: Any) -> Any:
    machine = Machine(capability=(capability[0], capability[1]), memory_bytes=memory_bytes, name=name)
    return oracle.batch_defaults(root, machine, **arguments)


LIFTED: dict[str, Callable[..., Any]] = {
    "stock_capture_sizes": lifted_sizes,
    "stock_manager": lifted_manager,
    "drafter_managers": lifted_drafter,
    "resolve_mode": oracle.resolve_mode,
    "batch_defaults": lifted_defaults,
    "lora_cases": oracle.lora_cases,
}


def as_json(answer: Any) -> Any:
    """What ``json`` makes of a lifted answer, refusals in the form of ``real_engine``."""
    if isinstance(answer, Refusal):
        return {"refusal": answer.kind, "message": answer.message}
    return json.loads(json.dumps(answer))


@pytest.mark.parametrize("ask", sorted(LIFTED))
def test_lifted_text_answers_like_the_imported_engine(compared: tuple[Path, Any], ask: str) -> None:
    root, real = compared
    pairs = [
        (request["with"], answer)
        for request, answer in zip(every_request(), real["answers"], strict=True)
        if request["ask"] == ask and not _is_single_module(request["with"])
    ]

    different = [
        (arguments, answer) for arguments, answer in pairs if as_json(LIFTED[ask](root, **arguments)) != answer
    ]

    assert len(pairs) > CASES // 2
    assert different == []


def _is_single_module(arguments: dict[str, Any]) -> bool:
    """The engine never builds the multi-module speculator for one draft."""
    return arguments.get("name") == "MultiModuleMTPSpeculator" and arguments["num_speculative_tokens"] == 1


def test_both_sides_name_files_of_the_same_engine(compared: tuple[Path, Any]) -> None:
    root, real = compared
    oracle.stock_capture_sizes(root, sm100=True, max_num_seqs=8, max_num_batched_tokens=64)
    print(oracle.provenance_report(root))
    print("\n".join(f"imported {module} <- {file}" for module, file in real["files"].items()))

    imported = {Path(file) for file in real["files"].values()}

    assert {file.is_relative_to(root.resolve() / "vllm") for file in imported} == {True}
    assert real["version"] == oracle.engine_version(root)


def test_the_requests_are_varied(compared: tuple[Path, Any]) -> None:
    _, real = compared
    answers = list(zip((r["ask"] for r in every_request()), real["answers"], strict=True))
    lists = {tuple(a[0]) for ask, a in answers if ask == "stock_capture_sizes" and isinstance(a, list)}
    dispatched = [d for ask, a in answers if ask == "stock_manager" for d in a["dispatched"]]
    modes = {Graph(*d).mode for d in dispatched}

    assert len(lists) > CASES // 2
    assert modes == {"FULL", "PIECEWISE", "NONE"}
    assert {a for ask, a in answers if ask == "resolve_mode" and isinstance(a, str)} >= {"NONE", "PIECEWISE"}
