"""Every fact copied from an engine stands in that engine's own text, and sets copied whole are whole.

White space is ignored in a quote.  A quote proves the text; that the value follows from it is for the unit and the
differential tests.
"""

import ast
import dataclasses
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import servespec.compiler.facts
from servespec.compiler.facts.architecture_tables import ARCHITECTURE_TABLES
from servespec.compiler.facts.architectures import BREAKABLE_ARCHITECTURES, STATE_BACKENDS
from servespec.compiler.facts.attention import ATTENTION_FACTS
from servespec.compiler.facts.cudagraph_mode import MODE_FACTS
from servespec.provenance import Sourced

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path
class_reading = importlib.import_module("class_reading")

ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", Path(__file__).resolve().parents[2] / ".engines"))
VERSIONS = ("0.33.0", "0.32.0")

pytestmark = pytest.mark.engine


def engine(version: str) -> Path:
    root = ENGINES / f"vllm-{version}"
    if not root.is_dir():
        pytest.skip(f"no unpacked vLLM {version}: run tools/fetch_engines.py")
    return root


def fact_modules() -> Iterator[ModuleType]:
    package = servespec.compiler.facts
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(found.name)


def sourced_in(value: object, seen: set[int]) -> Iterator[Sourced[object]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Sourced):
        yield value
    if isinstance(value, Mapping):
        parts: list[object] = list(value.values())
    elif isinstance(value, tuple | list | frozenset):
        parts = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        return
    for part in parts:
        yield from sourced_in(part, seen)


def all_sourced() -> tuple[Sourced[object], ...]:
    seen: set[int] = set()
    found = [fact for module in fact_modules() for value in vars(module).values() for fact in sourced_in(value, seen)]
    return tuple(found)


ENGINE_FACTS = tuple(fact for fact in all_sourced() if fact.package == "vllm")


@cache
def squeezed(path: Path) -> str:
    return "".join(path.read_text(encoding="utf-8").split())


def test_there_are_facts_of_both_versions() -> None:
    counts = {version: sum(fact.version == version for fact in ENGINE_FACTS) for version in VERSIONS}

    assert all(count > 40 for count in counts.values()), counts
    assert {fact.version for fact in ENGINE_FACTS} == set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_quotes_stand_in_the_engine(version: str) -> None:
    root = engine(version)
    missing = [
        f"{fact.path}: {' '.join(fact.quote.split())}"
        for fact in ENGINE_FACTS
        if fact.version == version and "".join(fact.quote.split()) not in squeezed(root / fact.path)
    ]

    assert missing == []


def test_no_quote_is_empty() -> None:
    assert [fact for fact in ENGINE_FACTS if len("".join(fact.quote.split())) < 12] == []


def assigned(path: Path, name: str) -> ast.expr:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.expr):
            return value
    raise LookupError(name)


@pytest.mark.parametrize("version", VERSIONS)
def test_breakable_architectures_are_the_engines(version: str) -> None:
    call = assigned(engine(version) / "vllm/config/vllm.py", "DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES")
    assert isinstance(call, ast.Call)

    assert BREAKABLE_ARCHITECTURES[version].value == ast.literal_eval(call.args[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_attention_operators_are_the_engines(version: str) -> None:
    written = ast.literal_eval(assigned(engine(version) / "vllm/config/compilation.py", "_attention_ops"))

    assert list(MODE_FACTS[version].attention_ops.value) == written


@pytest.mark.parametrize("version", VERSIONS)
def test_backend_names_are_the_engines(version: str) -> None:
    text = (engine(version) / "vllm/v1/attention/backends/registry.py").read_text(encoding="utf-8")
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    enum = next(node for node in classes if node.name == "AttentionBackendEnum")
    names = {node.targets[0].id for node in enum.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]

    assert ATTENTION_FACTS[version].names.value == names


@pytest.mark.parametrize("version", VERSIONS)
def test_latent_model_types_are_the_engines(version: str) -> None:
    path = engine(version) / "vllm/transformers_utils/model_arch_config_convertor.py"
    functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
    function = next(node for node in functions if node.name == "is_deepseek_mla")
    names = max((node for node in ast.walk(function) if isinstance(node, ast.Tuple)), key=lambda t: len(t.elts))

    assert ARCHITECTURE_TABLES[version].mla_model_types.value == set(ast.literal_eval(names))


GENERATING = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
POOLING = (
    "_EMBEDDING_MODELS",
    "_LATE_INTERACTION_MODELS",
    "_REWARD_MODELS",
    "_TOKEN_CLASSIFICATION_MODELS",
    "_SEQUENCE_CLASSIFICATION_MODELS",
)

OTHERS = ("_SPECULATIVE_DECODING_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS", "_TRANSFORMERS_BACKEND_MODELS")


def registered(root: Path, tables: tuple[str, ...]) -> set[str]:
    path = root / "vllm/model_executor/models/registry.py"
    dicts = [assigned(path, table) for table in tables]
    return {key.value for found in dicts for key in found.keys if isinstance(key, ast.Constant)}  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", VERSIONS)
def test_generating_and_pooling_architectures_are_the_engines(version: str) -> None:
    root = engine(version)
    tables = ARCHITECTURE_TABLES[version]
    generating = registered(root, GENERATING)

    pooling = registered(root, POOLING)

    assert tables.generative.value == generating
    assert tables.pooling.value == pooling - generating
    assert tables.others.value == registered(root, OTHERS) - generating - pooling


@pytest.mark.parametrize("version", VERSIONS)
def test_kinds_of_architectures_follow_from_the_engines_classes(version: str) -> None:
    reader = class_reading.ClassReader(engine(version))
    tables = ARCHITECTURE_TABLES[version]

    assert tables.hybrid.value == reader.architectures_with("IsHybrid")
    assert tables.attention_free.value == reader.architectures_with("IsAttentionFree")
    assert tables.multimodal.value == reader.architectures_with("SupportsMultiModal")


def test_recurrent_architectures_with_a_known_backend_are_recurrent() -> None:
    tables = ARCHITECTURE_TABLES["0.33.0"]

    assert set(STATE_BACKENDS) <= tables.hybrid.value | tables.attention_free.value


STATE_BACKEND_NAMES = {name for names in STATE_BACKENDS.values() for name in names}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recurrent_backend_has_a_row(version: str) -> None:
    assert set(ATTENTION_FACTS[version].state_backends) >= STATE_BACKEND_NAMES
