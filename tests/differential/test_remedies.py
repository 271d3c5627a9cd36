"""Remedies in the engine's own functions, over real tensors: what they free, and what they leave as it was."""

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from servespec.runtime.extension import remedies
from servespec.runtime.extension.remedies import capture_on_one_stream, nested_weak_refs
from tests.differential.lifting import EngineText
from tests.differential.test_extension import needs_engine, root

UTILS = "vllm.utils.torch_utils"
BREAKABLE = "vllm.compilation.breakable_cudagraph"
GROUPS = "vllm.distributed.parallel_state"
STARTUP = "vllm.v1.worker.startup_plan"


# Nested outputs


def alias(torch: Any, tensor: Any) -> Any:
    """What the engine's operator makes: another tensor over the same memory, which does not keep it."""
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)


class Wrapped:
    """The engine's breakable wrapper around a target with auxiliary outputs, without a device."""

    def __init__(self, torch: Any) -> None:
        operators = SimpleNamespace(_C=SimpleNamespace(weak_ref_tensor=lambda one: alias(torch, one)))
        offloader = SimpleNamespace(sync_prev_onload=lambda: None, join_after_forward=lambda: None)
        self.text = EngineText(
            root(),
            {
                "torch": SimpleNamespace(Tensor=torch.Tensor, ops=operators),
                "vllm.sequence:IntermediateTensors": type("IntermediateTensors", (), {}),
                f"{BREAKABLE}:validate_cudagraph_capturing_enabled": lambda: None,
                f"{BREAKABLE}:gc": SimpleNamespace(isenabled=lambda: False),
                f"{BREAKABLE}:get_offloader": lambda: offloader,
                f"{BREAKABLE}:capture_pool": lambda *_: nullcontext(),
                f"{BREAKABLE}:BreakableCUDAGraphCapture": lambda **_: nullcontext(SimpleNamespace(replay=lambda: None)),
                f"{BREAKABLE}:logger": SimpleNamespace(debug=lambda *_: None),
            },
        )
        self.module = self.text.module(BREAKABLE)
        members = ("_capture", "_replay", "_collect_tensor_addresses")
        wrapper = self.text.part_of_class(f"{BREAKABLE}:BreakableCUDAGraphWrapper", members)
        # A part of a class comes without its decorators.
        wrapper._collect_tensor_addresses = staticmethod(wrapper._collect_tensor_addresses)
        self.wrapper = wrapper()
        self.wrapper.graph_pool = self.wrapper.vllm_config = None
        self.wrapper.is_debugging_mode = False

    def run(self, runnable: Callable[[], Any]) -> tuple[Any, Any]:
        """What a capture returns, and what a replay does."""
        entry = SimpleNamespace(batch_descriptor=None, capture=None, output=None, input_addresses=None)
        self.wrapper.runnable = runnable
        return self.wrapper._capture(entry, (), {}), self.wrapper._replay(entry, (), {})


def outputs_of(torch: Any, alive: dict[str, Any]) -> Callable[[], Any]:
    def target() -> Any:
        tensors = {name: torch.full((4, 8), float(number)) for number, name in enumerate(("hidden", "early", "late"))}
        alive.update({name: weakref.ref(tensor) for name, tensor in tensors.items()})
        alive.update({f"{name} at": tensor.data_ptr() for name, tensor in tensors.items()})
        return tensors["hidden"], [tensors["early"], tensors["late"]]

    return target


def still_held(alive: dict[str, Any]) -> set[str]:
    return {name for name in ("hidden", "early", "late") if alive[name]() is not None}


@needs_engine
def test_the_engine_keeps_nested_outputs_and_the_remedy_does_not() -> None:
    torch = pytest.importorskip("torch")
    stock, remedied = Wrapped(torch), Wrapped(torch)
    counted: list[None] = []
    engines_own, weak_ref_tensor = (
        remedied.text.get(f"{UTILS}:{name}") for name in ("weak_ref_tensors", "weak_ref_tensor")
    )
    remedied.module["weak_ref_tensors"] = nested_weak_refs(engines_own, weak_ref_tensor, lambda: counted.append(None))
    by_stock: dict[str, Any] = {}
    by_remedy: dict[str, Any] = {}

    kept = stock.run(outputs_of(torch, by_stock))
    found = remedied.run(outputs_of(torch, by_remedy))

    assert still_held(by_stock) == {"early", "late"}
    assert still_held(by_remedy) == set()
    assert len(counted) == 4  # two tensors, of what is returned and of what is kept for replays
    for hidden, auxiliary in found:
        assert [one.data_ptr() for one in (hidden, *auxiliary)] == [
            by_remedy[f"{n} at"] for n in ("hidden", "early", "late")
        ]
    assert [shape_of(one) for one in found] == [shape_of(one) for one in kept]


def shape_of(output: Any) -> Any:
    """The containers and the shapes of what they hold."""
    if isinstance(output, list | tuple):
        return type(output), [shape_of(one) for one in output]
    return tuple(output.shape), output.dtype


@needs_engine
@pytest.mark.parametrize("make", [list, tuple])
def test_flat_outputs_are_as_the_engine_makes_them(make: Any) -> None:
    torch = pytest.importorskip("torch")
    wrapped = Wrapped(torch)
    engines_own, weak_ref_tensor = (
        wrapped.text.get(f"{UTILS}:{name}") for name in ("weak_ref_tensors", "weak_ref_tensor")
    )
    ours = nested_weak_refs(engines_own, weak_ref_tensor, lambda: pytest.fail("nothing is nested"))
    outputs = make([torch.ones(3), torch.empty(0), None])

    found, expected = ours(outputs), engines_own(outputs)

    assert type(found) is type(expected) is make
    assert [getattr(one, "data_ptr", lambda: 0)() for one in found] == [
        getattr(one, "data_ptr", lambda: 0)() for one in expected
    ]
    assert found[1] is expected[1] is outputs[1]
    with pytest.raises(ValueError, match="Invalid type"):
        ours("text")


# One stream


class Group:
    def __init__(self, name: str, seen: list[tuple[str, Any]]) -> None:
        self.name, self.seen = name, seen

    @contextmanager
    def graph_capture(self, context: Any) -> Iterator[None]:
        self.seen.append((self.name, context.stream))
        yield
        self.seen.append((f"{self.name} left", context.stream))


def parallel_state(seen: list[tuple[str, Any]]) -> EngineText:
    groups = {f"{GROUPS}:get_{name}_group": lambda name=name: Group(name, seen) for name in ("tp", "pp", "dp")}
    allocator = {"vllm.device_allocator.alloc_conf:non_expandable_allocations": nullcontext}
    platform = {"vllm.platforms:current_platform": SimpleNamespace(is_rocm=lambda: False)}
    torch = SimpleNamespace(cuda=SimpleNamespace(Stream=lambda **_: object()))
    return EngineText(root(), {**groups, **allocator, **platform, "torch": torch})


@needs_engine
def test_captures_join_the_same_groups_as_the_engines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    by_engine: list[tuple[str, Any]] = []
    ours: list[tuple[str, Any]] = []
    text, other = parallel_state(by_engine), parallel_state(ours)
    names = ("GraphCaptureContext", "get_tp_group", "get_pp_group", "get_dp_group")
    members = {name: other.get(f"{GROUPS}:{name}") for name in names}
    put_modules(monkeypatch, {"torch": vars(other.stand_ins["torch"]), GROUPS: members})

    contexts = [*twice(text.get(f"{GROUPS}:graph_capture")), *twice(capture_on_one_stream(lambda: None))]

    assert [name for name, _ in by_engine] == [name for name, _ in ours]
    assert [len({id(stream) for _, stream in seen}) for seen in (by_engine, ours)] == [2, 1]
    assert [type(one).__name__ for one in contexts] == ["GraphCaptureContext"] * 4


def twice(graph_capture: Any) -> list[Any]:
    seen = []
    for _ in range(2):
        with graph_capture(device="cuda:0") as context:
            seen.append(context)
    return seen


def put_modules(monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any]) -> None:
    """Modules of the engine and torch as ours would import them, and the packages above them."""
    for name in [one for one in sys.modules if one.partition(".")[0] in ("vllm", "torch")]:
        monkeypatch.delitem(sys.modules, name)
    for name, members in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            own = ".".join(parts[:end])
            module = sys.modules.get(own) or ModuleType(own)
            monkeypatch.setitem(sys.modules, own, module)
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        vars(sys.modules[name]).update(members)


# KV cache


class Starts:
    """Workers that start one after the other with the engine's own keeping of a size, as the remedy makes it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        platform = SimpleNamespace(
            get_device_capability=lambda: (9, 0),
            get_device_name=lambda: "H200",
            get_device_total_memory=lambda: 141 << 30,
        )
        torch = SimpleNamespace(__version__="2", version=SimpleNamespace(cuda="13"))
        logger = SimpleNamespace(info=lambda *_: None, warning=pytest.fail)
        stand_ins = {
            "torch": torch,
            "vllm:__version__": "0.33.0",
            "vllm.envs": SimpleNamespace(VLLM_ENABLE_STARTUP_PLAN=True, VLLM_CACHE_ROOT=str(folder)),
            f"{STARTUP}:current_platform": platform,
            f"{STARTUP}:logger": logger,
        }
        text = EngineText(root(), stand_ins)
        names = ("maybe_apply_startup_plan", "maybe_save_startup_plan")
        group = SimpleNamespace(world_size=1)
        modules = {
            "torch": {},
            "vllm.v1.worker.gpu_worker": {name: text.get(f"{STARTUP}:{name}") for name in names},
            GROUPS: {"get_world_group": lambda: group},
        }
        put_modules(monkeypatch, modules)
        monkeypatch.setattr(remedies, "measured_kv_bytes", lambda worker: worker.measured_bytes)
        self.counts = remedies.apply_remedies(["kv_from_measurement"])

    def start(self, *, digest: str = "d", free_bytes: int = 100, measured_bytes: int = 70) -> int | None:
        """The kept size that the start takes; it measures where it takes none, and the engine suggests 60."""
        from vllm.v1.worker import gpu_worker

        worker = SimpleNamespace(
            cache_config=SimpleNamespace(kv_cache_memory_bytes=None),
            vllm_config=SimpleNamespace(compute_hash=lambda: digest),
            parallel_config=SimpleNamespace(world_size=1),
            init_snapshot=SimpleNamespace(free_memory=free_bytes),
            rank=0,
            measured_bytes=measured_bytes,
            model_runner=SimpleNamespace(profile_run=print),
        )
        gpu_worker.maybe_apply_startup_plan(worker)
        assert worker.model_runner.profile_run is not print
        kept: int | None = worker.cache_config.kv_cache_memory_bytes
        if kept is None:
            gpu_worker.maybe_save_startup_plan(worker, 60)
        return kept


@needs_engine
def test_the_second_start_takes_what_the_first_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts(tmp_path, monkeypatch)

    assert starts.start() is None
    assert starts.counts == {"kv_from_measurement": 0}
    assert starts.start() == 70
    assert starts.counts == {"kv_from_measurement": 1}


@needs_engine
def test_another_plan_and_a_fuller_device_measure_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts(tmp_path, monkeypatch)
    starts.start()

    assert starts.start(digest="another hand-off") is None
    assert starts.start(free_bytes=99, measured_bytes=69) is None
    assert starts.start(free_bytes=99) == 69


@needs_engine
def test_a_size_that_does_not_fit_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts(tmp_path, monkeypatch)
    starts.start(measured_bytes=-1)

    assert starts.start() is None
