"""Reading a command line: a spec's own command line reads back to it, and nothing but SpecError is raised."""

import functools
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servespec.compiler.command_line import command_line_source, read_command_line
from servespec.compiler.engine_homes import section_fields
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.engine_fields import EngineField, Kind, table
from servespec.compiler.lower import Launch, Lowering, lower
from servespec.diagnostics import SpecError
from servespec.schema.dump import dump_yaml
from servespec.schema.parse import parse_spec, sections
from servespec.schema.source import SpecSource, read_source
from servespec.schema.spec import OpenSection
from servespec.units import Tokens

TABLE = table("0.33.0")
PLAIN = (Kind.BOOL, Kind.INT, Kind.LITERAL)
AS_FLAGS = ("model", "parallel", "scheduler", "memory", "lora")
MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")


def flag_sections() -> dict[str, type[OpenSection]]:
    return {name: model for name, model in sections() if name in AS_FLAGS and issubclass(model, OpenSection)}


@functools.cache
def plain_fields(section: str) -> tuple[EngineField, ...]:
    """The engine's fields of a section that a flag sets to a plain value."""
    flags = [flag for name in TABLE.flags() if (flag := TABLE.flag(name)) is not None]
    settable = {(flag.config, flag.field) for flag in flags}
    return tuple(
        field
        for field in section_fields(flag_sections()[section], TABLE)
        if (field.config, field.name) in settable and not field.secret and any(k.kind in PLAIN for k in members(field))
    )


def members(field: EngineField) -> tuple[Any, ...]:
    return field.type.members


def values_of(field: EngineField) -> st.SearchStrategy[Any]:
    """Plain values that the field's type and bounds take."""
    taken: list[st.SearchStrategy[Any]] = []
    for one in members(field):
        if one.kind is Kind.BOOL:
            taken.append(st.booleans())
        elif one.kind is Kind.INT:
            taken.append(st.integers(-1, 4096).filter(lambda n: field.bounds.check(n) is None))
        elif one.kind is Kind.LITERAL:
            taken.append(st.sampled_from(one.choices))
    return st.one_of(taken)


@st.composite
def engine_settings(draw: st.DrawFn, section: str) -> dict[str, Any]:
    fields = draw(st.lists(st.sampled_from(plain_fields(section)), max_size=4, unique_by=lambda one: one.name))
    return {field.name: draw(values_of(field)) for field in fields}


counts = st.integers(1, 4096)
names = st.text("abcXYZ0189-_./", min_size=1, max_size=12).filter(lambda text: not text.startswith("-"))


@st.composite
def tiers(draw: st.DrawFn) -> list[dict[str, int]]:
    ends = sorted(draw(st.sets(st.integers(1, 200), max_size=3)))
    drafts = [draw(st.integers(0, 7)) for _ in range(len(ends) + 1)]
    bounded = [{"up_to": end, "num_speculative_tokens": k} for end, k in zip(ends, drafts, strict=False)]
    return [*bounded, {"num_speculative_tokens": drafts[-1]}]


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A spec as read from a command line: everything that lowering writes is there."""
    limits = {"max_num_seqs": draw(counts), "max_num_batched_tokens": draw(counts)}
    data: dict[str, Any] = {
        "servespec": 1,
        "model": {"id": draw(names), **draw(own_model), **draw(engine_settings("model"))},
        "parallel": {**draw(own_parallel), **draw(engine_settings("parallel"))},
        "scheduler": {**limits, **draw(engine_settings("scheduler"))},
        "memory": {**draw(own_memory), **draw(engine_settings("memory"))},
        "compilation": draw(own_compilation),
        "kernel": draw(some(moe_backend=st.sampled_from(["auto", "triton", "deep_gemm"]), monokernel=st.booleans())),
        "serve": {"host": draw(names), "port": draw(st.integers(1, 65535))},
        **draw(
            some(
                performance_mode=st.sampled_from(["balanced", "interactivity", "throughput"]),
                optimization_level=st.integers(0, 3),
            )
        ),
    }
    if draw(st.booleans()):
        data["lora"] = {"max_loras": draw(counts), **draw(engine_settings("lora"))}
    if draw(st.booleans()):
        data["speculative"] = {**draw(own_speculative), "num_speculative_tokens": 7}
    return {name: value for name, value in data.items() if value != {}}


own_model = some(
    dtype=st.sampled_from(["auto", "bfloat16"]),
    max_model_len=st.integers(1, 10**6),
    enforce_eager=st.just(True),
    trust_remote_code=st.just(True),
    served_model_name=names,
    hf_overrides=st.dictionaries(names, st.one_of(st.integers(), st.booleans(), names), min_size=1, max_size=2),
)
own_parallel = some(tensor_parallel_size=st.integers(2, 64), enable_expert_parallel=st.just(True))
own_memory = some(
    gpu_memory_utilization=st.floats(0.01, 1.0), kv_cache_memory_bytes=st.integers(1, 2**60), block_size=counts
)
own_compilation = some(
    cudagraph_mode=st.sampled_from(MODES),
    cudagraph_capture_sizes=st.lists(counts, min_size=1, max_size=6),
    custom_ops=st.lists(st.sampled_from(["none", "+rms_norm"]), max_size=2),
)
own_speculative = some(
    method=st.sampled_from(["eagle3", "mtp", "ngram"]),
    model=names,
    dynamic=tiers(),
    draft_sample_method=st.sampled_from(["greedy", "probabilistic"]),
)


def lowered(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The command line of a spec, as the engine gets it."""
    whole = {**data, "hardware": {"gpu": "h200"}}
    spec = parse_spec(SpecSource("spec", "", whole)).spec
    assert spec is not None
    speculative = spec.speculative
    sizes = spec.compilation.cudagraph_capture_sizes
    launch = Launch(
        spec=spec,
        table=TABLE,
        program=("vllm", "serve", spec.model.id),
        mode=CudaGraphMode(spec.compilation.cudagraph_mode or "FULL"),
        asks_for_graphs=spec.compilation.cudagraph_mode is not None,
        max_num_seqs=spec.scheduler.max_num_seqs or 1,
        max_num_batched_tokens=spec.scheduler.max_num_batched_tokens or 1,
        tiers=ranges_of(data),
        num_speculative_tokens=speculative.num_speculative_tokens if speculative else None,
        method=speculative.method if speculative else None,
        pinned_backend=None,
        capture_fields={},
        hand_off=None,
        remedies=(),
        kv_cache_memory_bytes=spec.memory.kv_cache_memory_bytes,
    )
    token_list = None if sizes is None else tuple(map(Tokens, sizes))
    return lower(launch, Lowering.LEGACY, token_list).argv


def ranges_of(data: Mapping[str, Any]) -> tuple[tuple[int, int, int], ...]:
    written = data.get("speculative", {}).get("dynamic", [])
    ends = [tier.get("up_to", 4096) for tier in written]
    starts = [1, *(end + 1 for end in ends[:-1])]
    drafts = [tier["num_speculative_tokens"] for tier in written]
    return tuple(zip(starts, ends, drafts, strict=False))


@given(specs())
@settings(max_examples=150)
def test_a_spec_reads_back_from_its_own_command_line(data: dict[str, Any]) -> None:
    """With the engine's statistics, which every launch line asks for and which are then the spec's own."""
    read = read_command_line(lowered(data), TABLE, {})
    engine = data.get("engine", {})
    asked = {**engine, "args": {"cudagraph-metrics": True, **engine.get("args", {})}}

    assert read.data == {**data, "engine": asked}
    assert read.leftovers == ()


@given(specs())
@settings(max_examples=60)
def test_what_is_read_is_a_spec_and_reads_back_from_its_yaml(data: dict[str, Any]) -> None:
    source = command_line_source(read_command_line(lowered(data), TABLE, {}), "h200", 2)

    assert parse_spec(source).diagnostics == ()
    assert read_source(dump_yaml(source.data), "mended").data == source.data


SPELLINGS = sorted({one for name in TABLE.flags() if (flag := TABLE.flag(name)) for one in flag.spellings})
WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(SPELLINGS),
    st.sampled_from(
        ["-cc.a.b", "-cc.a+", "-O", "-O3", "--config", "c.yaml", "--", "-0.5", "-1", "{}", "[", "--=", "-="]
    ),
    st.builds("{}={}".format, st.sampled_from(SPELLINGS), st.text(max_size=5)),
    st.builds("{}.{}".format, st.sampled_from(SPELLINGS), st.text(max_size=5)),
    st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)).map(
        json.dumps
    ),
)
STARTS = st.sampled_from(
    [
        ["vllm", "serve"],
        ["python", "-m", "vllm.entrypoints.openai.api_server"],
        ["docker", "run", "vllm/vllm-openai"],
        ["env", "A=1", "vllm", "serve", "org/model"],
    ]
)


@given(STARTS, st.lists(WORDS, max_size=6), st.text(max_size=30))
@settings(max_examples=300)
def test_any_words_after_a_program_are_read_with_findings_alone(start: list[str], words: list[str], text: str) -> None:
    read = read_command_line([*start, *words], TABLE, {"c.yaml": text})

    assert all(d.message.isprintable() and d.help.isprintable() for d in read.leftovers)
    assert json.loads(json.dumps(read.data, allow_nan=False)) == read.data


@given(st.lists(WORDS, max_size=6))
@settings(max_examples=100)
def test_words_without_a_program_raise_spec_error(words: list[str]) -> None:
    with pytest.raises(SpecError) as raised:
        read_command_line(words, TABLE, {})

    assert [d.code for d in raised.value.diagnostics] == ["S301"]


@given(st.lists(WORDS, max_size=6))
@settings(max_examples=100)
def test_no_word_of_a_secret_is_repeated(words: list[str]) -> None:
    secret = "tok3n-of-mine"  # noqa: S105 - a made-up one
    line = [f"HF_TOKEN={secret}", "vllm", "serve", "org/model", "--api-key", secret, f"--hf-token={secret}", *words]
    read = read_command_line(line, TABLE, {})

    assert secret not in json.dumps([read.data, [d.to_json() for d in read.leftovers]])
