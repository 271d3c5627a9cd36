"""The digests of the engine's functions: what they ignore and catch, and that the recorded ones hold."""

import ast
import os
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts.engine_fields import recorded_digests
from servespec.compiler.facts.source_digest import digest_of, digests_of, names_in

ROOT = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines"))

PLAIN = """
class Ladder:
    step: int = 8

    def sizes(self, cap: int, *, name="x") -> list[int]:
        found = [1, 2, 4]
        for size in range(8, cap + 1, self.step):
            if size % 3 and name != f"{size!r:>4}-{name}":
                found.append(size)
        return found
"""
DECORATED_WITH_WORDS = '''
class Ladder:
    """A ladder."""

    step: int = 8  # a step
    """The step."""

    def sizes(
        self,
        cap: int,
        *,
        name='x',
    ) -> list[int]:
        """Sizes up to a cap."""
        found = [1, 2, 4]   # the small ones

        for size in range(8, (cap + 1), self.step):
            "every step"
            if size % 3 and (name != f"{size!r:>4}-{name}"):
                found.append(size)
        return found
'''
# Literal pieces of an f-string, and functions without and with type parameters, parse apart between versions.
MANY_PYTHONS = """
async def f(a, /, b=1, *c, d: "int" = -2, **e):
    x = f"a" "b" f"{a}" f"c{b:{d}}d" 'e'
    with open(x) as g, h() as i:
        y = lambda z: (yield) if not z else {**z, 1: [*c]}
    match a:
        case {"k": [1, *rest]} | None:
            return 1_000, 0x10, 1e3, b"x", ..., rest
    try:
        del y
    except (A, B) as error:
        raise error from None
"""


def test_comments_docstrings_and_format_do_not_count() -> None:
    for name in ("Ladder", "Ladder.sizes"):
        assert digest_of(DECORATED_WITH_WORDS, name) == digest_of(PLAIN, name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cap + 1", "cap + 2"),
        ("cap + 1", "cap - 1"),
        ("[1, 2, 4]", "[1, 2]"),
        ("[1, 2, 4]", "(1, 2, 4)"),
        ("self.step", "self.steps"),
        ("size % 3", "size % 3.0"),
        ('name="x"', "name=x"),
        (":>4", ":>5"),
        ("!r", "!s"),
        ("cap: int", "cap: float"),
        ("*, name", "name"),
        ("def sizes", "async def sizes"),
        (" and ", " or "),
        ("return found", "yield found"),
    ],
)
def test_whatever_runs_counts(old: str, new: str) -> None:
    changed = PLAIN.replace(old, new)

    assert changed != PLAIN
    assert digest_of(changed, "Ladder") != digest_of(PLAIN, "Ladder")


def test_a_method_is_told_from_its_class() -> None:
    other = PLAIN.replace("step: int = 8", "step: int = 9")

    assert digest_of(other, "Ladder.sizes") == digest_of(PLAIN, "Ladder.sizes")
    assert digest_of(other, "Ladder") != digest_of(PLAIN, "Ladder")


def test_the_digest_of_this_text_is_the_same_under_every_python() -> None:
    """A literal: a Python whose parser or tree differs would compute another."""
    assert digest_of(MANY_PYTHONS, "f") == "9461c5a8f35397ca"
    assert digest_of(PLAIN, "Ladder") == "31176e5ab8ae288b"


CONSTANTS = st.integers() | st.text(max_size=5) | st.booleans() | st.none() | st.floats(allow_nan=False)


@given(one=CONSTANTS, other=CONSTANTS)
def test_two_constants_have_one_digest_only_where_they_are_the_same(one: object, other: object) -> None:
    texts = [f"def f():\n    return ({value!r},)\n" for value in (one, other)]

    same = digest_of(texts[0], "f") == digest_of(texts[1], "f")

    assert same is (repr(one) == repr(other))


@given(comment=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])), indent=st.integers(1, 9))
def test_any_comment_and_any_indent(comment: str, indent: int) -> None:
    body = textwrap.indent(PLAIN.replace("    ", " " * indent), "")
    commented = body.replace("found = [1", f"# {comment}\n{' ' * 2 * indent}found = [1")

    assert digest_of(commented, "Ladder") == digest_of(PLAIN, "Ladder")


@given(st.data())
def test_what_ast_writes_back_has_the_same_digest(data: st.DataObject) -> None:
    """On real modules: this repository's own."""
    path = data.draw(st.sampled_from(sorted((ROOT / "servespec").rglob("*.py"))))
    text = path.read_text(encoding="utf-8")
    rewritten = ast.unparse(ast.parse(text))
    names = frozenset(names_in(text))

    assert digests_of(rewritten, names) == digests_of(text, names)


def test_names_and_digests_of_a_text() -> None:
    assert names_in(PLAIN) == ("Ladder", "Ladder.sizes")
    assert digests_of(PLAIN, frozenset({"Ladder.sizes", "absent"})) == {
        "Ladder.sizes": digest_of(PLAIN, "Ladder.sizes")
    }


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        digest_of(PLAIN, "Ladder.steps")


SPEC_DECODE = "vllm/v1/worker/gpu/spec_decode"
REPLACED_OR_RELIED_ON = [
    "vllm/config/vllm.py:VllmConfig._set_cudagraph_sizes",
    "vllm/config/vllm.py:VllmConfig.use_v2_model_runner",
    "vllm/config/compilation.py:CompilationConfig.resolve_cudagraph_mode_and_sizes",
    "vllm/v1/worker/gpu/cudagraph_utils.py:BatchExecutionDescriptor",
    "vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager._init_candidates",
    "vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager.dispatch",
    "vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager.capture",
    "vllm/v1/worker/gpu/cudagraph_utils.py:ModelCudaGraphManager",
    "vllm/v1/worker/gpu/cudagraph_utils.py:profile_cudagraph_memory",
    "vllm/v1/worker/gpu/dp_utils.py:dispatch_cg_and_sync_dp",
    "vllm/v1/worker/gpu/lora_utils.py:get_lora_capture_cases",
    f"{SPEC_DECODE}/dflash/speculator.py:DFlashSpeculator.init_cudagraph_manager",
    f"{SPEC_DECODE}/target_dependent_ar/cudagraph_utils.py:SpeculatorCudaGraphManager.specialize_spec_tokens",
    f"{SPEC_DECODE}/target_dependent_ar/cudagraph_utils.py:SpeculatorCudaGraphManager.capture",
    "vllm/compilation/cuda_graph.py:CUDAGraphStat",
    "vllm/v1/metrics/loggers.py:StatLoggerManager.record",
    "vllm/v1/metrics/loggers.py:load_stat_logger_plugin_factories",
    "vllm/v1/worker/gpu/cudagraph_utils.py:make_cudagraph_stats",
    "vllm/v1/worker/worker_base.py:WorkerWrapperBase.shutdown",
    "vllm/v1/worker/utils.py:get_uniform_decode_token_count",
    "vllm/v1/spec_decode/dynamic/utils.py:build_dynamic_sd_schedule_lookup",
    "vllm/engine/arg_utils.py:EngineArgs.get_batch_defaults",
    "vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager.run_fullgraph",
    "vllm/v1/worker/gpu/model_runner.py:GPUModelRunner.execute_model",
    "vllm/v1/worker/gpu/model_runner.py:GPUModelRunner.sample",
    "vllm/v1/worker/gpu/model_runner.py:GPUModelRunner.sample_tokens",
    "vllm/v1/worker/gpu/model_runner.py:ExecuteModelState",
    "vllm/v1/worker/gpu/model_states/default.py:DefaultModelState.prepare_attn",
    "vllm/v1/worker/gpu/warmup.py:_warmup_block_counter",
    "vllm/v1/worker/gpu_worker.py:Worker.compile_or_warm_up_model",
    "vllm/v1/worker/gpu_worker.py:Worker.execute_model",
    "vllm/v1/worker/gpu_worker.py:Worker.sample_tokens",
    "vllm/v1/worker/gpu/states.py:RequestState.add_request",
    "vllm/v1/worker/gpu/async_utils.py:AsyncOutput.get_output",
    f"{SPEC_DECODE}/target_dependent_ar/speculator.py:TargetDependentARSpeculator.propose",
    f"{SPEC_DECODE}/dflash/speculator.py:DFlashSpeculator.propose",
    "vllm/v1/core/sched/output.py:SchedulerOutput",
]


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
def test_what_servespec_replaces_or_relies_on_is_recorded(version: str) -> None:
    assert [name for name in REPLACED_OR_RELIED_ON if name not in recorded_digests()[version]] == []


def test_the_function_that_sizes_graphs_is_the_same_in_both_versions() -> None:
    old, new = (recorded_digests()[version] for version in ("0.32.0", "0.33.0"))
    sizing = "vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager._init_candidates"

    assert old[sizing] == new[sizing]
    assert old != new


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
def test_the_recorded_digests_are_those_of_the_wheel(version: str) -> None:
    root = ENGINES / f"vllm-{version}"
    if not root.is_dir():
        pytest.skip(f"no .engines/vllm-{version}: run python tools/fetch_engines.py {version}")
    recorded = recorded_digests()[version]

    found = {
        key: digest_of((root / key.split(":")[0]).read_text(encoding="utf-8"), key.split(":")[1]) for key in recorded
    }

    assert found == recorded
