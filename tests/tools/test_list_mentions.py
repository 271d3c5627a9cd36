"""Every place of the wheels that names the list of graph sizes is a listed reader, graph machinery or not reached."""

import os
from pathlib import Path

import pytest
from compare_engines import moved_readers
from engine_reading.list_mentions import Mention, list_mentions
from engine_reading.source import Engine

from servespec.compiler.facts.list_readers import GRAPH_MACHINERY, LIST_READERS, NOT_REACHED, listed_functions
from servespec.compiler.facts.source_digest import names_in

ROOT = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines"))
VERSIONS = ("0.33.0", "0.32.0")
READERS_OF_THE_WHOLE_CONFIG = {("vllm/config/compilation.py", "CompilationConfig.compute_hash")}


def engine(version: str) -> Engine:
    root = ENGINES / f"vllm-{version}"
    if not root.is_dir():
        pytest.skip(f"no .engines/vllm-{version}: run python tools/fetch_engines.py {version}")
    return Engine(root)


def made_up(root: Path, text: str) -> Engine:
    (root / "vllm").mkdir(parents=True)
    (root / "vllm" / "new.py").write_text(text, encoding="utf-8")
    return Engine(root)


def unlisted(mentions: frozenset[Mention], version: str) -> list[Mention]:
    """Places that no table names."""
    listed = set(listed_functions(version))
    return sorted(one for one in mentions if one not in listed and one[0] not in {**GRAPH_MACHINERY, **NOT_REACHED})


@pytest.mark.engine
@pytest.mark.parametrize("version", VERSIONS)
def test_every_place_of_a_wheel_is_in_one_table(version: str) -> None:
    mentions = list_mentions(engine(version))

    assert len(mentions) > 50
    assert unlisted(mentions, version) == []
    assert set(listed_functions(version)) - mentions == READERS_OF_THE_WHOLE_CONFIG


@pytest.mark.engine
def test_no_file_of_the_tables_is_stale() -> None:
    paths = {path for version in VERSIONS for path, _ in list_mentions(engine(version))}

    assert {*GRAPH_MACHINERY, *NOT_REACHED} <= paths
    assert set(GRAPH_MACHINERY).isdisjoint(NOT_REACHED)
    assert {path for version in VERSIONS for path, _ in listed_functions(version)}.isdisjoint(NOT_REACHED)


@pytest.mark.engine
@pytest.mark.parametrize("version", VERSIONS)
def test_every_function_of_a_reader_stands_in_the_file_of_its_quote(version: str) -> None:
    root = engine(version).root
    gone = [
        (sourced.path, function)
        for sourced in LIST_READERS[version]
        for function in sourced.value.functions
        if function not in names_in((root / sourced.path).read_text(encoding="utf-8"))
    ]

    assert gone == []


@pytest.mark.parametrize(
    "line",
    [
        "self.size = config.max_cudagraph_capture_size",
        "self.size = getattr(config, 'cudagraph_capture_sizes', None)",
        "make(max_capture_size=8)",
        "if tokens <= builder.decode_cudagraph_max_bs: pass",
    ],
)
def test_a_new_reader_is_named(tmp_path: Path, line: str) -> None:
    wheel = made_up(tmp_path, f"class Backend:\n    def build(self, config, builder, tokens):\n        {line}\n")

    assert unlisted(list_mentions(wheel), "0.33.0") == [("vllm/new.py", "Backend.build")]


def test_words_about_the_list_are_no_reader(tmp_path: Path) -> None:
    wheel = made_up(
        tmp_path, 'def build():\n    """Reads no cudagraph_capture_sizes."""  # max_cudagraph_capture_size\n'
    )

    assert list_mentions(wheel) == frozenset()


def test_readers_that_came_and_went(tmp_path: Path) -> None:
    old = made_up(tmp_path / "old", "def before(config):\n    return config.max_cudagraph_capture_size\n")
    new = made_up(tmp_path / "new", "def after(config):\n    return config.max_cudagraph_capture_size\n")

    assert list(moved_readers(old, new)) == ["new vllm/new.py:after", "gone vllm/new.py:before"]
