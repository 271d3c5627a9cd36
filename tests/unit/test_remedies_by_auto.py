"""What `auto` turns on: what is proven on the architecture at hand, under the extension alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.facts.proven_remedies import PROVEN_REMEDIES
from servespec.compiler.graphs.hand_off import HAND_OFF_KEY, Remedy
from servespec.compiler.graphs.shape import Runner
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.line import Part
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.compiler.remedies import architecture_of, remedies_in_force
from servespec.compiler.remedy_savings import RemedyState
from servespec.provenance import Origin
from servespec.render.explanation import explanation
from servespec.render.plan_tables import captures
from servespec.render.plan_text import plan_text
from servespec.runtime.gather import Options, compile_request
from tests.plans import Json, compiled, model_folder, source_of, spec_of
from tests.strategies import EXTENSION

STREAM = Remedy.ONE_CAPTURE_STREAM
NAMED = f"remedies.{STREAM}"
EAGLE3: Json = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
OWN_SIZES: Json = {"max_decode_cudagraph_capture_requests": 512, "max_prefill_cudagraph_capture_tokens": 4096}
"""More of both than one list says, so that `auto` takes the extension without any remedy."""


def spec(gpu: str = "h200", model: str = "qwen3-8b", **sections: Any) -> Json:
    return spec_of(model, gpu, **{"speculative": EAGLE3, "compilation": OWN_SIZES, **sections})


def plan(gpu: str = "h200", model: str = "qwen3-8b", **sections: Any) -> Plan:
    return compiled(spec(gpu, model, **sections))


def on_engine(**changes: Any) -> Plan:
    request = compile_request(source_of(spec()), Options())
    return compile_spec(replace(request, engine=replace(request.engine, **changes)))


def switched(value: bool) -> Json:
    return {"remedies": {STREAM: value}}


def draft_with(folder: Path, *architectures: str) -> Json:
    config = json.loads(Path(model_folder("eagle3-draft"), "config.json").read_text(encoding="utf-8"))
    folder.joinpath("config.json").write_text(json.dumps({**config, "architectures": architectures}), encoding="utf-8")
    return {"speculative": {**EAGLE3, "model": str(folder)}}


# On


def test_it_is_the_same_launch_as_if_it_were_asked_for() -> None:
    found, asked = plan(), plan(**switched(True))
    argv = found.lowered.argv

    assert found.lowered.remedies == (STREAM,)
    assert json.loads(argv[argv.index("--additional-config") + 1])[HAND_OFF_KEY]["remedies"] == [STREAM]
    assert found.lowered == asked.lowered
    assert found.stages == asked.stages


def test_the_ledger_has_what_it_saves() -> None:
    found, without = plan(), plan(**switched(False))
    (saving,) = found.savings
    assert found.ledger is not None
    assert without.ledger is not None

    assert (saving.remedy, saving.state) == (STREAM, RemedyState.IN_FORCE)
    assert without.ledger.of(Part.GRAPHS).size - found.ledger.of(Part.GRAPHS).size == saving.size > 0
    assert found.ledger.cache.size > without.ledger.cache.size


def test_the_plan_says_who_turned_it_on_and_why() -> None:
    document = plan().to_json()
    value, because = document["resolved"][NAMED], PROVEN_REMEDIES[0].architecture.words
    words = "one_capture_stream (auto: measured on this architecture)"

    assert document["remedies"] == [STREAM]
    assert value == {
        "value": True,
        "origin": Origin.DERIVED,
        "because": f"measured on this architecture and its graphs held against eager: {because}",
    }
    assert f"  remedies     {words}\n" in plan_text(document)
    assert because in plan_text(document, details=True)
    assert captures(document).endswith(f" Remedies: {words}.")


def test_what_was_asked_for_is_not_put_down_to_auto() -> None:
    document = plan(**switched(True)).to_json()

    assert NAMED not in document["resolved"]
    assert "  remedies     one_capture_stream\n" in plan_text(document)


def test_a_build_of_the_release_is_the_release() -> None:
    assert on_engine(version="0.33.0+cu129").lowered.remedies == (STREAM,)


def test_another_gpu_of_the_architecture_counts() -> None:
    assert plan("h100").lowered.remedies == (STREAM,)


def test_explain_names_every_architecture() -> None:
    for proven in PROVEN_REMEDIES:
        text = " ".join(explanation(f"remedies.{proven.remedy}").text.split())
        major, minor = proven.architecture.compute_capability

        assert f"on for `{proven.architecture.target}` with `{proven.architecture.drafter}`" in text
        assert f"on compute capability {major}.{minor} with vLLM {proven.architecture.engine_version}, " in text
        assert f"`{proven.architecture.attention_backend}`, one rank and no LoRA, else off" in text


# Off


def is_off(found: Plan) -> bool:
    """And the plan is silent about it, but for what it would save."""
    states = {str(saving.remedy): saving.state for saving in found.savings}
    return (
        found.lowered.remedies == ()
        and NAMED not in found.resolution.values
        and "remedies" not in found.to_json()
        and states.get(STREAM) is not RemedyState.IN_FORCE
    )


def test_false_leaves_it_off() -> None:
    assert is_off(plan(**switched(False)))


@pytest.mark.parametrize("lowering", [Lowering.LEGACY, Lowering.NONE])
def test_another_lowering_has_none(lowering: Lowering) -> None:
    found = plan(engine={"version": "0.33.0", "lowering": lowering})

    assert found.lowered.lowering is lowering
    assert is_off(found)


def test_a_lowering_that_is_enough_stays_where_true_asks_for_the_extension() -> None:
    drafting: Json = {"speculative": {**EAGLE3, "num_speculative_tokens": 1}}
    small: Json = {"compilation": {}, "scheduler": {"max_num_seqs": 16}, **drafting}
    lowerings = [plan(**small, **more).lowered.lowering for more in ({}, switched(False), switched(True))]

    assert lowerings == [Lowering.NONE, Lowering.NONE, Lowering.EXTENSION]
    assert is_off(plan(**small))


def test_one_manager_leaves_it_nothing_to_do() -> None:
    found = plan()
    target = tuple(shape for shape in found.graphs.shapes if shape.runner is Runner.TARGET)

    assert remedies_in_force(found.resolution, found.graphs.shapes, Lowering.EXTENSION) == (STREAM,)
    assert remedies_in_force(found.resolution, target, Lowering.EXTENSION) == ()


@pytest.mark.parametrize("gpu", ["b200", "a100-80", "rtx-pro-6000"])
def test_another_compute_capability(gpu: str) -> None:
    found = plan(gpu, engine=EXTENSION)

    assert found.lowered.lowering is Lowering.EXTENSION
    assert is_off(found)


@pytest.mark.parametrize("field", ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"])
def test_more_ranks_than_were_measured(field: str) -> None:
    hardware: Json = {"gpu": "h200", "count": 2}
    found = plan(hardware=hardware, parallel={field: 2}, engine=EXTENSION)

    assert found.lowered.lowering is Lowering.EXTENSION
    assert is_off(found)


def test_the_ranks_of_a_prefill_are_counted() -> None:
    """The proven models have no plan with them: their attention has no such parallelism."""
    layout: Json = {"hardware": {"gpu": "h200", "count": 2}, "parallel": {"prefill_context_parallel_size": 2}}
    asked, resolution = compile_request(source_of(spec(**layout)), Options()).spec, plan().resolution

    assert architecture_of(replace(resolution, request=replace(resolution.request, spec=asked))) is None


def test_one_rank_of_every_kind_is_one_rank() -> None:
    one_each = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1}

    assert plan(parallel=one_each).lowered.remedies == (STREAM,)


@pytest.mark.parametrize("lora", [{}, {"max_loras": 2}])
def test_lora(lora: Json) -> None:
    found = plan(lora=lora, engine=EXTENSION)

    assert found.lowered.lowering is Lowering.EXTENSION
    assert is_off(found)


@pytest.mark.parametrize(("backend", "remedies"), [("FLASH_ATTN", (STREAM,)), ("auto", (STREAM,)), ("TRITON_ATTN", ())])
def test_what_the_target_attends_with(backend: str, remedies: tuple[Remedy, ...]) -> None:
    found = plan(attention={"backend": backend}, engine=EXTENSION)

    assert found.lowered.lowering is Lowering.EXTENSION
    assert found.lowered.remedies == remedies
    assert is_off(found) is not bool(remedies)


def test_an_attention_that_is_not_known() -> None:
    resolution = plan().resolution

    assert architecture_of(resolution) is not None
    assert architecture_of(replace(resolution, candidates=())) is None


def test_another_target_although_it_was_measured() -> None:
    assert is_off(plan(model="qwen3-30b-a3b", engine=EXTENSION))


def test_no_draft_model() -> None:
    assert is_off(plan(speculative={"method": "ngram", "num_speculative_tokens": 3}, engine=EXTENSION))


@pytest.mark.parametrize(
    "architectures", [("Eagle3LlamaForCausalLM",), ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")]
)
def test_another_drafter_or_one_of_several_names(architectures: tuple[str, ...], tmp_path: Path) -> None:
    """A pair of names is not taken for a target's and a drafter's."""
    assert is_off(plan(**draft_with(tmp_path, *architectures), engine=EXTENSION))


@pytest.mark.parametrize("changes", [{"version": "0.33.1"}, {"verified": False}])
def test_another_release_or_source(changes: Json) -> None:
    found = on_engine(**changes)

    assert found.lowered.lowering is Lowering.EXTENSION
    assert is_off(found)


def test_a_remedy_that_was_replayed_and_not_measured_stays_off() -> None:
    breakable = plan(compilation={**OWN_SIZES, "breakable_cudagraph": True}, engine=EXTENSION)
    states = {str(saving.remedy): saving.state for saving in breakable.savings}

    assert breakable.lowered.remedies == (STREAM,)
    assert states[Remedy.WEAK_AUX_OUTPUTS] is RemedyState.OFF
