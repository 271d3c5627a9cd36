"""The native lowering: an engine that has the five fields is handed them, and the plan is that of the extension."""

import json
from dataclasses import replace

import pytest

from servespec.compiler.lower import Lowering
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.runtime.gather import Options, compile_request
from tests.plans import Json, model_folder, source_of, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

FIELDS: Json = {
    "max_prefill_cudagraph_capture_tokens": 2048,
    "decode_cudagraph_capture_request_sizes": [1, 2, 4, 8, 12],
    "max_decode_cudagraph_capture_tokens": 64,
}


def spec_with(compilation: Json, lowering: str = "auto") -> Json:
    return spec_of(
        "qwen3-8b",
        "h200",
        engine={"version": "0.33.0", "lowering": lowering},
        scheduler={"max_num_seqs": 128},
        speculative={"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3},
        compilation=compilation,
    )


def plan_on(spec: Json, *, has_split_fields: bool) -> Plan:
    request = compile_request(source_of(spec), Options())
    return compile_spec(replace(request, engine=replace(request.engine, has_split_fields=has_split_fields)))


def compilation_of(plan: Plan) -> Json:
    argv = plan.lowered.argv
    config: Json = json.loads(argv[argv.index("--compilation-config") + 1])
    return config


def test_auto_hands_the_fields_to_an_engine_that_has_them() -> None:
    plan = plan_on(spec_with(FIELDS), has_split_fields=True)

    assert plan.lowered.lowering is Lowering.NATIVE
    assert plan.lowered.token_list is None
    assert compilation_of(plan) == FIELDS


def test_its_plan_is_the_extensions() -> None:
    native = plan_on(spec_with(FIELDS), has_split_fields=True)
    extension = plan_on(spec_with(FIELDS, "extension"), has_split_fields=False)

    assert native.graphs.shapes == extension.graphs.shapes
    assert native.graphs.coverage == extension.graphs.coverage


def test_no_budget_is_the_tokens_of_the_widest_decode() -> None:
    plan = plan_on(spec_with({"max_decode_cudagraph_capture_tokens": "unlimited"}), has_split_fields=True)

    assert compilation_of(plan) == {"max_decode_cudagraph_capture_tokens": 128 * 4}


def test_an_engine_without_the_fields_is_not_handed_them() -> None:
    with pytest.raises(SpecError) as refused:
        plan_on(spec_with(FIELDS, "native"), has_split_fields=False)

    assert [finding.code for finding in refused.value.diagnostics] == ["R116"]
