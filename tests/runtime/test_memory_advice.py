"""Which graph ran out of memory, and the smallest change that fits."""

import json
import re
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.hand_off import manager_class
from servespec.compiler.graphs.managers import managers_of, own_shapes
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.capture_log import bar_of, planned_counts
from servespec.runtime.capture_report import graph_of
from servespec.runtime.engine_log import Phase
from servespec.runtime.memory_advice import advised
from servespec.runtime.run_rules import ENGINE_EXITED, OUT_OF_MEMORY
from servespec.runtime.shortage import capture_order, read_shortage
from tests.plans import compiled, model_folder, spec_of
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

GIB = 1 << 30
TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 1 has a total capacity of "
    "139.81 GiB of which 512.00 MiB is free. Including non-PyTorch memory, this process has 139.1 GiB in use."
)
STARTUP = (
    "Free memory on device cuda:0 ({free}/{total} GiB) on startup is less than desired GPU memory utilization "
    "({share}, 132.81 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
ONE_REQUEST = (
    "To serve at least one request with the model's max seq len (131072), (12.0 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (8.5 GiB). {fitting}Try increasing `gpu_memory_utilization`"
)
FAILED = "the engine exited with code `1` before it was ready"


def plan_of(**sections: Any) -> Plan:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}
    given = {
        "engine": EXTENSION,
        "speculative": draft,
        "scheduler": {"max_num_seqs": 256, "max_num_batched_tokens": 8192},
        "compilation": {
            "max_decode_cudagraph_capture_requests": 256,
            "max_prefill_cudagraph_capture_tokens": 8192,
        },
        **sections,
    }
    return compiled(spec_of("qwen3-8b", "h200", **given))


def advice(plan: Plan, folder: Path, log: str) -> Diagnostic:
    path = folder / "engine.log"
    path.write_text(log, encoding="utf-8")
    return advised(OUT_OF_MEMORY.at(Place(str(path)), FAILED, "static"), plan, folder, path)


def drawn(plan: Plan, shape: Shape) -> str:
    """The log of an engine that failed at ``shape``: every bar before it, and its own."""
    method = plan.resolution.drafting.method.value or ""
    done: dict[tuple[str, str], int] = {}
    lines = []
    for one in capture_order(plan):
        bar = bar_of(one, method)
        total = planned_counts(plan)[bar]
        name = f"Capturing {bar[0]} CUDA graphs" if bar[0] else "Capturing CUDA graphs"
        lines.append(f"{name} ({bar[1]}):  9%|#  | {done.get(bar, 0)}/{total} [00:01<00:00]")
        if one is shape:
            break
        done[bar] = done.get(bar, 0) + 1
    return "\n".join([*lines, TORCH.format(wanted="2.00 GiB")]) + "\n"


def recorded(plan: Plan, folder: Path, shape: Shape) -> None:
    """What a worker leaves that failed at ``shape``."""
    frame = plan.resolution.frame
    manager = next(one for one in managers_of(frame) if shape in own_shapes(one, plan.graphs.shapes))
    record = {
        "format": 1,
        "phase": "capturing graphs",
        "error": "OutOfMemoryError",
        "message": TORCH.format(wanted="2.00 GiB"),
        "free_bytes": GIB // 2,
        "class": manager_class(frame, manager),
        "query_len": manager.query_len,
        "mode": str(shape.mode),
        "graph": list(graph_of(shape)),
    }
    (folder / "failed-0-1.json").write_text(json.dumps(record), encoding="utf-8")


@pytest.mark.parametrize("at", [0, 1, 40, 77, 100, 130, 188])
def test_every_graph_is_found_by_the_record_and_by_the_log(at: int, tmp_path: Path) -> None:
    plan = plan_of()
    shape = capture_order(plan)[at]
    log = tmp_path / "engine.log"
    log.write_text(drawn(plan, shape), encoding="utf-8")

    by_log = read_shortage(plan, tmp_path, log)
    recorded(plan, tmp_path, shape)
    by_record = read_shortage(plan, tmp_path, log)

    for found in (by_log, by_record):
        assert (found.phase, found.shape, found.captured_graphs) == (Phase.CAPTURING, shape, at)
        assert (found.wanted_bytes, found.free_bytes) == (2 * GIB, GIB // 2)


def test_a_size_at_which_nothing_is_captured_is_no_graph_of_the_plan(tmp_path: Path) -> None:
    mtp = {"method": "mtp", "num_speculative_tokens": 1}
    plan = compiled(spec_of("glm-4.5-air", "h200", engine=EXTENSION, speculative=mtp))
    log = tmp_path / "engine.log"
    bar = "Capturing prefill CUDA graphs (PIECEWISE):  9%|#  | 3/51 [00:01<00:00]"
    log.write_text(f"{bar}\n{TORCH.format(wanted='2.00 GiB')}\n", encoding="utf-8")

    found = read_shortage(plan, tmp_path, log)

    assert (found.phase, found.shape) == (Phase.CAPTURING, None)


def test_the_finding_names_runner_shape_and_free_memory(tmp_path: Path) -> None:
    plan = plan_of()
    later = next(one for one in capture_order(plan) if one.routine is Routine.LATER_STEPS and one.requests == 96)
    recorded(plan, tmp_path, later)

    finding = advice(plan, tmp_path, "torch.OutOfMemoryError: CUDA out of memory.\n")

    at = capture_order(plan).index(later) + 1
    assert finding.message == (
        "out of device memory while capturing graphs, at `drafter later_steps` FULL of 96 tokens, 96 requests, "
        f"graph {at} of 189, 0.5 of 139.8 GiB were free: {FAILED}"
    )


def test_the_cache_gives_what_was_lacking(tmp_path: Path) -> None:
    plan = plan_of()
    log = drawn(plan, capture_order(plan)[0])

    # 1.5 GiB lack, 1.4 GiB are a hundredth of the device.
    assert advice(plan, tmp_path, log).help == (
        "write `memory.gpu_memory_utilization: 0.90` (now 0.92): 2.8 GiB less KV cache"
    )


def test_a_pinned_cache_is_lowered_by_the_bytes(tmp_path: Path) -> None:
    plan = plan_of(memory={"kv_cache_memory_bytes": "40GiB"})

    finding = advice(plan, tmp_path, drawn(plan, capture_order(plan)[0]))

    assert finding.help == f"write `memory.kv_cache_memory_bytes: {40 * GIB - 3 * GIB // 2}` (now {40 * GIB})"


def test_a_cache_that_is_too_large_by_the_ledger_gives_all_of_that(tmp_path: Path) -> None:
    """The allocation that failed lacks little, and more is to come."""
    pinned = 118 * GIB
    plan = plan_of(memory={"kv_cache_memory_bytes": pinned}, remedies={"one_capture_stream": False})
    assert plan.ledger is not None
    fitting = plan.ledger.device_bytes - plan.ledger.all_lines.size
    assert fitting < pinned - 3 * GIB // 2

    finding = advice(plan, tmp_path, drawn(plan, capture_order(plan)[0]))

    assert finding.help.startswith(f"write `memory.kv_cache_memory_bytes: {fitting}` (now {pinned})")


def test_an_error_that_does_not_say_why_has_its_place_all_the_same(tmp_path: Path) -> None:
    """As of an operator behind a stable interface; the log says that memory ran out."""
    plan = plan_of()
    shape = capture_order(plan)[23]
    recorded(plan, tmp_path, shape)
    path = tmp_path / "failed-0-1.json"
    path.write_text(path.read_text().replace(TORCH.format(wanted="2.00 GiB"), "API call failed"), encoding="utf-8")
    log = tmp_path / "engine.log"
    log.write_text(TORCH.format(wanted="2.00 GiB"), encoding="utf-8")

    found = read_shortage(plan, tmp_path, log)

    assert (found.shape, found.captured_graphs, found.free_bytes) == (shape, 23, GIB // 2)


def test_the_worker_that_ran_out_of_memory_is_asked_first(tmp_path: Path) -> None:
    plan = plan_of()
    shape, other = capture_order(plan)[5], capture_order(plan)[6]
    recorded(plan, tmp_path, other)
    first = tmp_path / "failed-0-1.json"
    consequence = first.read_text().replace(TORCH.format(wanted="2.00 GiB"), "NCCL error: remote process exited")
    (tmp_path / "failed-0-0.json").write_text(consequence, encoding="utf-8")
    recorded(plan, tmp_path, shape)
    log = tmp_path / "engine.log"
    log.write_text(TORCH.format(wanted="2.00 GiB"), encoding="utf-8")

    assert read_shortage(plan, tmp_path, log).shape == shape


@pytest.mark.parametrize("sizes", [None, list(range(8, 257, 8))])
def test_the_cap_is_the_highest_with_no_more_graphs_than_were_captured(sizes: list[int] | None, tmp_path: Path) -> None:
    def with_decode(limit: int) -> Plan:
        chosen = (
            {"max_decode_cudagraph_capture_requests": limit}
            if sizes is None
            else {"decode_cudagraph_capture_request_sizes": [one for one in sizes if one <= limit]}
        )
        return plan_of(compilation={"max_prefill_cudagraph_capture_tokens": 8192, **chosen})

    plan = with_decode(256)
    order = capture_order(plan)
    captured = len(order) - 20
    shape = order[captured]
    assert shape.mode is CudaGraphMode.FULL
    finding = advice(plan, tmp_path, drawn(plan, shape))

    row = sorted({one.size for one in order if one.routine is Routine.UNIFORM_DECODE})
    found = re.search(r"(?:requests: |above )(\d+)", finding.help)
    assert found is not None, finding.help
    limit = int(found[1])
    assert len(with_decode(limit).graphs.shapes) <= captured < len(with_decode(row[row.index(limit) + 1]).graphs.shapes)
    change = (
        f"write `compilation.max_decode_cudagraph_capture_requests: {limit}`"
        if sizes is None
        else f"take the sizes above {limit} out of `compilation.decode_cudagraph_capture_request_sizes`"
    )
    assert f"{change}: {len(with_decode(limit).graphs.shapes)} graphs" in finding.help
    assert f"decode batches of {limit + 1}-256 requests run on PIECEWISE graphs" in finding.help


def test_a_cap_that_leaves_batches_eager_says_so(tmp_path: Path) -> None:
    compilation = {
        "prefill_cudagraph_capture_token_sizes": [512],
        "decode_cudagraph_capture_request_sizes": [32, 64, 128, 256],
    }
    plan = plan_of(compilation=compilation, speculative=None)
    order = capture_order(plan)

    finding = advice(plan, tmp_path, drawn(plan, order[-1]))

    assert "take the sizes above 128 out of" in finding.help
    assert "; decode batches of 129-256 requests run on PIECEWISE graphs" in finding.help
    small = plan_of(compilation={**compilation, "prefill_cudagraph_capture_token_sizes": [16]}, speculative=None)
    assert "129-256 requests run eagerly" in advice(small, tmp_path, drawn(small, capture_order(small)[-1])).help


def test_legacy_lists_get_no_cap_of_the_five_fields(tmp_path: Path) -> None:
    plan = plan_of(engine={"version": "0.33.0"}, compilation={"cudagraph_capture_sizes": [8, 64, 512]})

    finding = advice(plan, tmp_path, drawn(plan, capture_order(plan)[-1]))

    assert "compilation." not in finding.help


@pytest.mark.parametrize(
    ("before", "phase", "said"),
    [
        ("INFO Starting to load model x", "loading weights", "`parallel.tensor_parallel_size`"),
        ("INFO Model loading took 3.1 GiB", "profiling memory", "`scheduler.max_num_batched_tokens: 4096` (now 8192)"),
        ("INFO Available KV cache memory: 1", "sizing the KV cache", "`memory.gpu_memory_utilization: 0.90`"),
        ("INFO Graph capturing finished in 3 s", "warming up", "`memory.gpu_memory_utilization: 0.90`"),
        ("Capturing CUDA graphs (FULL):  50%|#  | 1/2 [00:01<00:00]", "profiling memory", "max_num_batched_tokens"),
    ],
)
def test_each_phase_has_its_help(before: str, phase: str, said: str, tmp_path: Path) -> None:
    finding = advice(plan_of(), tmp_path, f"{before}\n{TORCH.format(wanted='2.00 GiB')}\n")

    assert finding.message == f"out of device memory while {phase}, 0.5 of 139.8 GiB were free: {FAILED}"
    assert said in finding.help


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            STARTUP.format(free="130.1", total="139.8", share="0.95"),
            "write `memory.gpu_memory_utilization: 0.93` (now 0.95), or stop what else uses the device: 9.7 GiB of it",
        ),
        (STARTUP.format(free="130.02", total="139.8", share="0.95"), "`memory.gpu_memory_utilization: 0.92`"),
        ("No available memory for the cache blocks. Try increasing", "leave nothing of 0.92 of the device"),
        (
            ONE_REQUEST.format(fitting="Based on the available memory, the estimated maximum model length is 92800. "),
            "write `model.max_model_len: 92800` (now 131072), or give the KV cache 4.71 GiB more",
        ),
        (
            ONE_REQUEST.format(fitting=""),
            "give the KV cache 4.71 GiB more",
        ),
    ],
)
def test_what_the_engine_states_is_answered_with_its_numbers(line: str, said: str, tmp_path: Path) -> None:
    finding = advice(plan_of(), tmp_path, f"ValueError: {line}\n")

    assert finding.message == FAILED
    assert said in finding.help


def test_a_pinned_cache_below_one_request_is_raised(tmp_path: Path) -> None:
    plan = plan_of(memory={"kv_cache_memory_bytes": "6GiB"})

    finding = advice(plan, tmp_path, f"ValueError: {ONE_REQUEST.format(fitting='')}\n")

    assert finding.help == f"write `memory.kv_cache_memory_bytes: {ceil((12.0 * 1.1 + 0.005) * GIB)}` (now {6 << 30})"


_FAILED_AT_WARM_UP = "INFO Graph capturing finished in 3 s\n" + TORCH
_FAILED_AT_PROFILING = "INFO Model loading took 3.1 GiB\n" + TORCH
_SPREAD = "spread the model with `parallel.tensor_parallel_size`"
_IN_USE = "stop what else uses the device"


@pytest.mark.parametrize(
    ("sections", "log", "said"),
    [
        # More than the cache has, and a share that is less than the weights, or nothing.
        (
            {
                "model": {"id": model_folder("qwen3-8b"), "max_model_len": 4096},
                "memory": {"kv_cache_memory_bytes": "1GiB"},
            },
            _FAILED_AT_WARM_UP,
            f"{_SPREAD}, or {_IN_USE}",
        ),
        ({}, _FAILED_AT_WARM_UP.replace("{wanted}", "120.00 GiB"), f"{_SPREAD}, or {_IN_USE}"),
        (
            {"memory": {"gpu_memory_utilization": 0.2}},
            _FAILED_AT_WARM_UP.replace("{wanted}", "60.00 GiB"),
            f"{_SPREAD}, or {_IN_USE}",
        ),
        ({}, STARTUP.format(free="4.2", total="139.8", share="0.95"), f"{_IN_USE}: 135.6 GiB of it were in use"),
        ({}, STARTUP.format(free="0.9", total="139.8", share="0.95"), f"{_IN_USE}: 138.9 GiB of it were in use"),
        # A step below the longest prompt, where prompts are not chunked.
        (
            {
                "model": {"id": model_folder("qwen3-8b"), "max_model_len": 8192},
                "scheduler": {"max_num_seqs": 64, "max_num_batched_tokens": 8192, "enable_chunked_prefill": False},
                "speculative": None,
            },
            _FAILED_AT_PROFILING,
            _SPREAD,
        ),
        # More than the device has.
        (
            {"memory": {"gpu_memory_utilization": 0.99}},
            ONE_REQUEST.format(fitting=""),
            _SPREAD,
        ),
        (
            {"memory": {"kv_cache_memory_bytes": "6GiB"}},
            ONE_REQUEST.format(fitting="").replace("12.0 GiB KV", "140.0 GiB KV"),
            _SPREAD,
        ),
    ],
)
def test_a_change_that_would_be_refused_is_not_named(sections: Any, log: str, said: str, tmp_path: Path) -> None:
    finding = advice(plan_of(**sections), tmp_path, f"{log.replace('{wanted}', '2.00 GiB')}\n")

    assert finding.help.startswith(said)
    assert "write `memory" not in finding.help


def test_a_share_of_three_decimals_is_lowered_and_told_as_it_is_written(tmp_path: Path) -> None:
    plan = plan_of(memory={"gpu_memory_utilization": 0.925})

    assert advice(plan, tmp_path, drawn(plan, capture_order(plan)[0])).help == (
        "write `memory.gpu_memory_utilization: 0.90` (now 0.925): 2.8 GiB less KV cache"
    )


def test_other_findings_stay_as_they_are(tmp_path: Path) -> None:
    plan, log = plan_of(), tmp_path / "engine.log"
    log.write_text("Worker proc VllmWorker-0 died unexpectedly (exit code: -9)\n")
    killed = OUT_OF_MEMORY.at(Place("x"), FAILED, "dmesg")
    other = ENGINE_EXITED.at(Place("x"), FAILED, "see")

    assert advised(killed, plan, tmp_path, log) is killed
    assert advised(other, plan, tmp_path, log) is other


def test_the_widest_full_graph_of_the_extension_comes_first() -> None:
    plan = plan_of(compilation={"prefill_cudagraph_capture_token_sizes": [256]})

    first, second, *_ = capture_order(plan)

    assert (first.runner, first.mode, first.tokens) == (Runner.TARGET, CudaGraphMode.FULL, 512)
    assert (second.mode, second.tokens) == (CudaGraphMode.PIECEWISE, 256)
