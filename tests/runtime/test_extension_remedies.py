"""Remedies at work in a worker: the replaced functions, the size of the KV cache, and what is reported of them."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.plan import Plan
from servespec.runtime.capture_report import report_capture
from servespec.runtime.extension.measured_kv import agree_on_kept_kv, measured_kv_bytes, profile_when_compiled
from servespec.runtime.extension.remedies import apply_remedies, capture_on_one_stream, nested_weak_refs
from tests.plans import Json
from tests.runtime.test_capture_report import left, plan_of, report_of

MARGIN_BYTES = 150 << 20

Put = Callable[..., ModuleType]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a module in the engine's place; packages above it are made as they are needed."""

    def one(name: str, **members: Any) -> ModuleType:
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        package, _, own = name.rpartition(".")
        if package:
            monkeypatch.setattr(sys.modules.get(package) or one(package), own, module, raising=False)
        return module

    for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "torch")]:
        monkeypatch.delitem(sys.modules, name)
    return one


# Nested outputs


class Pair(NamedTuple):
    first: object
    second: object


class Held:
    """A tensor; a weak one of it is a text."""


def weak(value: object) -> object:
    return "weak" if isinstance(value, Held) else value


def test_outputs_are_weak_at_every_depth_and_keep_their_types() -> None:
    counted: list[None] = []
    refs = nested_weak_refs(weak, weak, lambda: counted.append(None))
    outputs = (Held(), [Held(), (Held(), None)], {"a": Pair(Held(), 3)})

    found = refs(outputs)

    assert found == ("weak", ["weak", ("weak", None)], {"a": Pair("weak", 3)})
    assert isinstance(found[2]["a"], Pair)
    assert len(counted) == 3
    assert refs([]) == []


def test_what_is_no_container_is_the_engines() -> None:
    asked: list[object] = []
    refs = nested_weak_refs(lambda one: asked.append(one) or "engine's", weak, lambda: None)
    tensor = Held()

    assert refs(tensor) == "engine's"
    assert asked == [tensor]


def test_the_breakable_wrapper_finds_the_replacement(put: Put) -> None:
    module = put("vllm.compilation.breakable_cudagraph", weak_ref_tensors=weak, weak_ref_tensor=weak)
    counts = apply_remedies([Remedy.WEAK_AUX_OUTPUTS])

    assert module.weak_ref_tensors((Held(), [Held(), Held()])) == ("weak", ["weak", "weak"])
    assert counts == {"weak_aux_outputs": 2}


# One stream


class Groups:
    """The parallel groups of an engine that record who enters with which stream."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def of(self, name: str) -> SimpleNamespace:
        @contextmanager
        def graph_capture(context: Any) -> Iterator[None]:
            self.seen.append((name, context.stream))
            try:
                yield
            finally:
                self.seen.append((f"{name} left", context.stream))

        return SimpleNamespace(graph_capture=graph_capture)

    def members(self) -> Json:
        names = ("tp", "pp", "dp")
        return {f"get_{name}_group": lambda name=name: self.of(name) for name in names}


@pytest.fixture
def groups(put: Put) -> Groups:
    found = Groups()
    put("torch", cuda=SimpleNamespace(Stream=lambda **_: object()))
    put(
        "vllm.distributed.parallel_state",
        GraphCaptureContext=lambda one: SimpleNamespace(stream=one),
        **found.members(),
    )
    return found


def test_each_device_has_one_stream(groups: Groups) -> None:
    graph_capture = capture_on_one_stream(lambda: None)

    streams = []
    for device in ("cuda:0", "cuda:0", "cuda:1"):
        with graph_capture(device=device) as context:
            streams.append(context.stream)

    assert streams[0] is streams[1]
    assert streams[0] is not streams[2]


def test_every_group_joins_each_capture_and_leaves_it(groups: Groups) -> None:
    graph_capture = capture_on_one_stream(lambda: None)

    with pytest.raises(MemoryError), graph_capture(device="cuda:0"):
        raise MemoryError
    with graph_capture(device="cuda:0"):
        pass

    once = ["tp", "pp", "dp", "dp left", "pp left", "tp left"]
    assert [name for name, _ in groups.seen] == [*once, *once]
    assert len({id(stream) for _, stream in groups.seen}) == 1


def test_the_managers_find_the_replacement(put: Put, groups: Groups) -> None:
    module = put("vllm.v1.worker.gpu.cudagraph_utils", graph_capture=None)
    counts = apply_remedies([Remedy.ONE_CAPTURE_STREAM])

    for _ in range(2):
        with module.graph_capture(device="cuda:0"):
            pass
    assert counts == {"one_capture_stream": 2}


# KV cache


class Snapshot:
    """Holds what it is given, or else, as the engine's, what is so `now`."""

    now: ClassVar[dict[str, int]] = {}

    def __init__(self, device: object = None, **numbers: int) -> None:
        self.device_ = device
        vars(self).update(numbers or self.now)


def started_worker(
    *, kv_bytes: int, other_bytes: int, requested_bytes: int, profiled_peak_bytes: int, estimate_bytes: int
) -> SimpleNamespace:
    """A worker of an engine that reserved its estimate, after capture; the device has 100,000 MB."""
    tensors = [
        SimpleNamespace(size=kv_bytes, host_resident=False),
        SimpleNamespace(size=kv_bytes, host_resident=False),  # another view of the same allocation
        SimpleNamespace(size=1 << 50, host_resident=True),
    ]
    return SimpleNamespace(
        init_snapshot=Snapshot("cuda:0", free_memory=100_000 << 20),
        requested_memory=float(requested_bytes),
        peak_activation_memory=profiled_peak_bytes + estimate_bytes,
        cudagraph_memory_estimate=estimate_bytes,
        model_runner=SimpleNamespace(kv_cache_config=SimpleNamespace(kv_cache_tensors=tensors)),
        free_bytes=(100_000 << 20) - other_bytes - kv_bytes,
    )


def measured(worker: SimpleNamespace, *, peak_since_bytes: int = 0, reserves: bool = True) -> int:
    now = {"free_memory": worker.free_bytes, "torch_allocated": 7 << 20, "torch_peak": (7 << 20) + peak_since_bytes}
    modules = {
        "torch": {"accelerator": SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None)},
        "vllm": {"envs": SimpleNamespace(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=reserves)},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, members in modules.items():
            module = ModuleType(name)
            vars(module).update(members)
            patch.setitem(sys.modules, name, module)
        patch.setattr(Snapshot, "now", now)
        return measured_kv_bytes(worker)


amounts = st.integers(0, 20_000 << 20)


@given(kv=amounts, other=amounts, peak=amounts, since=amounts, estimate=amounts)
def test_a_kv_cache_of_that_size_fills_the_utilization(
    kv: int, other: int, peak: int, since: int, estimate: int
) -> None:
    """Whatever the first start gave the cache, and whatever the engine had estimated."""
    requested_bytes = 92_000 << 20
    worker = started_worker(
        kv_bytes=kv,
        other_bytes=other,
        requested_bytes=requested_bytes,
        profiled_peak_bytes=peak,
        estimate_bytes=estimate,
    )

    found = measured(worker, peak_since_bytes=since)

    assert other + found + max(peak, since) + MARGIN_BYTES == requested_bytes


def test_an_estimate_that_was_not_reserved_is_not_in_the_peak() -> None:
    numbers = {"kv_bytes": 5 << 30, "other_bytes": 9 << 30, "requested_bytes": 60 << 30, "estimate_bytes": 0}
    worker = started_worker(**numbers, profiled_peak_bytes=3 << 30)
    worker.cudagraph_memory_estimate = 2 << 30

    assert measured(worker, reserves=False) == (60 - 9 - 3 << 30) - MARGIN_BYTES


def test_the_peak_that_is_profiled_is_of_what_is_compiled(put: Put) -> None:
    """The engine reads the highest that was allocated since it last asked to forget it."""
    peaks_mib, splits_mib, told = [0], [math.inf], list[tuple[bool, float]]()

    def engines_run(*, randomize_inputs: bool) -> None:
        """A step takes 928 MiB, and 1,792 while it compiles."""
        told.append((randomize_inputs, splits_mib[-1]))
        peaks_mib[-1] = max(peaks_mib[-1], 928 if len(told) > 1 else 1792)

    @contextmanager
    def split(*, max_split_size_mb: int) -> Iterator[None]:
        splits_mib.append(max_split_size_mb)
        yield
        splits_mib.pop()

    calls = {"empty_cache": lambda: None, "reset_peak_memory_stats": lambda: peaks_mib.append(0)}
    put("torch", accelerator=SimpleNamespace(**calls))
    runner = SimpleNamespace(profile_run=engines_run)
    profile_when_compiled(SimpleNamespace(model_runner=runner, _scoped_allocator_max_split=split))

    runner.profile_run(randomize_inputs=True)

    assert (told, peaks_mib[-1]) == ([(True, 20), (True, 20)], 928)
    assert splits_mib == [math.inf]


@pytest.mark.parametrize(
    ("own", "others", "kept"),
    [(5, [], 5), (None, [], None), (5, [True], 5), (5, [False], None), (None, [True], None)],
)
def test_one_rank_without_a_kept_cache_has_all_measure(
    put: Put, own: int | None, others: list[bool], kept: Any
) -> None:
    def gather(everyone: list[bool], given: bool, group: object) -> None:
        everyone[:] = [given, *others]

    group = SimpleNamespace(world_size=1 + len(others), cpu_group=object())
    put("torch", distributed=SimpleNamespace(all_gather_object=gather))
    put("vllm.distributed.parallel_state", get_world_group=lambda: group)
    worker = SimpleNamespace(cache_config=SimpleNamespace(kv_cache_memory_bytes=own))

    assert agree_on_kept_kv(worker) is (kept is not None)
    assert worker.cache_config.kv_cache_memory_bytes == kept


# The report


@pytest.fixture
def plan() -> Plan:
    return plan_of(remedies={"one_capture_stream": True})


@pytest.mark.parametrize(
    ("remedies", "messages"),
    [
        ({"one_capture_stream": 3}, []),
        ({}, ["the remedy `one_capture_stream` is not in force"]),
        (
            {"one_capture_stream": 3, "weak_aux_outputs": 0},
            ["the remedy `weak_aux_outputs` is in force, and was not planned"],
        ),
    ],
)
@pytest.mark.usefixtures("quiet_shell")
def test_a_worker_with_other_remedies_differs(plan: Plan, tmp_path: Path, remedies: Json, messages: list[str]) -> None:
    left(tmp_path, {**json.loads(json.dumps(report_of(plan))), "remedies": remedies})

    found = report_capture(plan, tmp_path).findings

    assert [(finding.code, finding.message) for finding in found] == [("L016", message) for message in messages]
