"""The plug-in in the engine's API server: what it counts, what it leaves, and where it does nothing."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from servespec.runtime import dispatch_logger
from servespec.runtime.dispatch_counts import ModeCount, read_counts, remove_counts, write_counts
from servespec.runtime.dispatch_logger import KEEP_VARIABLE
from servespec.runtime.extension.report import FOLDER_VARIABLE

PLUGIN_FOLDER = Path(dispatch_logger.__file__).with_name("engine_plugin")
GROUP = "vllm.stat_logger_plugins"
CONFIG = SimpleNamespace(model_config=SimpleNamespace(served_model_name="m"))


class Counter:
    """As prometheus_client's: a name is taken once, labels give a series."""

    names: dict[str, "Counter"] = {}  # noqa: RUF012 - emptied by the fixture

    def __init__(self, name: str, *_: object) -> None:
        assert name not in self.names, f"Duplicated timeseries: {name}"
        self.names[name] = self
        self.values: dict[tuple[str, ...], int] = {}

    def labels(self, *values: str) -> Any:
        def inc(amount: int) -> None:
            self.values[values] = self.values.get(values, 0) + amount

        return SimpleNamespace(inc=inc)


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand-ins for the two modules that the plug-in takes from the engine's environment."""
    Counter.names.clear()
    dispatch_logger._counters.cache_clear()
    base = type("AggregateStatLoggerBase", (), {})
    for name, members in {
        "vllm.v1.metrics.loggers": {"AggregateStatLoggerBase": base},
        "prometheus_client": {"Counter": Counter},
    }.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    yield
    dispatch_logger._counters.cache_clear()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.delenv(KEEP_VARIABLE, raising=False)
    return tmp_path


def logger() -> Any:
    return dispatch_logger.DispatchLogger(CONFIG, [0, 1])


def step(mode: str, unpadded: int, padding: int) -> Any:
    stat = SimpleNamespace(runtime_mode=mode, num_unpadded_tokens=unpadded, num_paddings=padding)
    return SimpleNamespace(cudagraph_stats=stat)


def count(mode: str, steps: int, unpadded: int, padding: int, engine: int = 0) -> ModeCount:
    return ModeCount(engine=engine, mode=mode, steps=steps, unpadded_tokens=unpadded, padding_tokens=padding)


def test_steps_are_counted_by_engine_and_mode(folder: Path) -> None:
    one = logger()

    for mode, unpadded, padding, engine in [
        ("FULL", 7, 1, 0),
        ("FULL", 3, 1, 0),
        ("NONE", 900, 0, 0),
        ("FULL", 5, 3, 1),
    ]:
        one.record(step(mode, unpadded, padding), None, engine_idx=engine)
    one.log()

    assert read_counts(folder) == (count("FULL", 2, 10, 2), count("NONE", 1, 900, 0), count("FULL", 1, 5, 3, engine=1))
    assert {name: series.values for name, series in Counter.names.items()} == {
        "servespec:target_steps": {("m", "0", "FULL"): 2, ("m", "0", "NONE"): 1, ("m", "1", "FULL"): 1},
        "servespec:target_unpadded_tokens": {("m", "0", "FULL"): 10, ("m", "0", "NONE"): 900, ("m", "1", "FULL"): 5},
        "servespec:target_padding_tokens": {("m", "0", "FULL"): 2, ("m", "0", "NONE"): 0, ("m", "1", "FULL"): 3},
    }


def test_a_second_logger_of_the_process_counts_on(folder: Path) -> None:
    logger().record(step("FULL", 1, 0), None)
    logger().record(step("FULL", 1, 0), None)

    assert Counter.names["servespec:target_steps"].values == {("m", "0", "FULL"): 2}


def test_an_engine_without_statistics_shows_nothing(folder: Path) -> None:
    one = logger()

    one.record(SimpleNamespace(cudagraph_stats=None), None)
    one.record(None, None)
    one.log()

    assert (read_counts(folder), list(folder.iterdir()), Counter.names) == ((), [], {})


def test_without_a_record_folder_nothing_is_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE)
    one, seen = logger(), step("FULL", 1, 0)

    one.record(seen, None)
    one.log()

    assert (list(folder.iterdir()), Counter.names) == ([], {})
    assert seen.cudagraph_stats is not None


def test_the_engines_own_table_is_logged_only_where_the_spec_asks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, left = step("FULL", 1, 0), step("FULL", 1, 0)

    logger().record(taken, None)
    monkeypatch.setenv(KEEP_VARIABLE, "1")
    logger().record(left, None)

    assert taken.cudagraph_stats is None
    assert left.cudagraph_stats is not None


def test_the_file_is_written_every_few_seconds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(dispatch_logger.time, "monotonic", lambda: now[0])
    one, seen = logger(), []

    for now[0] in (100.0, 101.0, 101.9, 102.0, 103.0):
        one.record(step("FULL", 1, 0), None)
        seen.append(sum(found.steps for found in read_counts(folder)))

    assert seen == [1, 1, 1, 4, 4]
    one.log()
    assert read_counts(folder) == (count("FULL", 5, 5, 0),)
    assert oct(next(folder.iterdir()).stat().st_mode & 0o777) == "0o600"


def test_a_folder_that_is_gone_costs_one_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder / "gone"))
    one = logger()

    for _ in range(3):
        one.record(step("FULL", 1, 0), None)
        one.log()

    assert [record.message.partition(":")[2].partition(":")[0] for record in caplog.records] == [
        " the step counts cannot be written"
    ]
    assert Counter.names["servespec:target_steps"].values == {("m", "0", "FULL"): 3}


def test_counts_of_several_servers_add_up_and_an_earlier_launchs_are_removed(tmp_path: Path) -> None:
    write_counts(tmp_path, 11, [count("FULL", 2, 10, 2), count("NONE", 1, 5, 0)])
    write_counts(tmp_path, 12, [count("FULL", 1, 4, 4)])

    assert read_counts(tmp_path) == (count("FULL", 3, 14, 6), count("NONE", 1, 5, 0))
    mine = tmp_path / "dispatch-notes.json"
    mine.write_text("of the user")
    remove_counts(tmp_path)
    assert list(tmp_path.iterdir()) == [mine]
    assert read_counts(tmp_path) == ()


def test_a_launched_engine_alone_finds_the_plug_in() -> None:
    assert [one for one in metadata.entry_points(group=GROUP) if "servespec" in one.value] == []

    on_path = list(metadata.distributions(path=[str(PLUGIN_FOLDER)]))
    (entry,) = [point for one in on_path for point in one.entry_points]

    assert [one.metadata["Name"] for one in on_path] == ["servespec-dispatch"]
    assert entry.group == GROUP
    assert entry.load().__name__ == "DispatchLogger"


def test_no_other_name_is_made_up() -> None:
    with pytest.raises(AttributeError):
        _ = dispatch_logger.Nonsense


IN_THE_ENGINE = """
import json
from types import SimpleNamespace
from prometheus_client import REGISTRY, generate_latest
from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.v1.metrics import loggers
from vllm.v1.metrics.stats import SchedulerStats

class Own(loggers.LoggingStatLogger):
    def __init__(self, *_): pass
    def record(self, *_, **__): pass

loggers.PrometheusStatLogger = Own
config = SimpleNamespace(model_config=SimpleNamespace(served_model_name="m"))
factories = loggers.load_stat_logger_plugin_factories()
manager = loggers.StatLoggerManager(config, [0], factories, enable_default_loggers=False)
manager.record(SchedulerStats(cudagraph_stats=CUDAGraphStat(7, 8, 1, "FULL")), None)
print(json.dumps([[type(one).__name__ for one in manager.stat_loggers], generate_latest(REGISTRY).decode()]))
"""


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs the cpu extra (bin/setup)")
def test_the_real_engine_loads_it_beside_its_own_prometheus_logger(tmp_path: Path) -> None:
    """In a process of its own: the engine's modules are large, and read the environment once."""
    paths = os.pathsep.join([str(PLUGIN_FOLDER), str(Path(dispatch_logger.__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths, FOLDER_VARIABLE: str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", IN_THE_ENGINE], env=environment, capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stderr
    loggers, metrics = json.loads(done.stdout.splitlines()[-1])
    assert loggers == ["DispatchLogger", "Own"]
    labels = '{engine="0",mode="FULL",model_name="m"}'
    for name, value in [("steps", 1.0), ("unpadded_tokens", 7.0), ("padding_tokens", 1.0)]:
        assert f"servespec:target_{name}_total{labels} {value}" in metrics.splitlines()
    assert read_counts(tmp_path) == (count("FULL", 1, 7, 1),)
