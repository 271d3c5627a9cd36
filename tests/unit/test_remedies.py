"""Remedies in a plan: what their switches hand to the workers, where they do nothing, and where they are refused."""

import json
from typing import Any

import pytest

from servespec.compiler.graphs.hand_off import HAND_OFF_KEY, Remedy, digest
from servespec.compiler.lower import STARTUP_PLAN_VARIABLE, Lowering
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from tests.plans import Json, compiled, model_folder, spec_of

EAGLE3 = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
BREAKABLE = {"breakable_cudagraph": True}
EVERY = tuple(Remedy)


def spec_with(*remedies: Remedy, **sections: Any) -> Json:
    """The spec leaves none to `auto`, so that each test is of what it names."""
    given: Json = {"speculative": EAGLE3, "compilation": BREAKABLE, "scheduler": {"max_num_seqs": 16}}
    switches = {remedy: remedy in remedies for remedy in EVERY}
    return spec_of("qwen3-8b", "h200", **{**given, "remedies": switches, **sections})


def plan_with(*remedies: Remedy, **sections: Any) -> Plan:
    return compiled(spec_with(*remedies, **sections))


def handed(plan: Plan) -> Json:
    argv = plan.lowered.argv
    given: Json = json.loads(argv[argv.index("--additional-config") + 1])[HAND_OFF_KEY]
    return given


def idle(plan: Plan) -> list[str]:
    return [finding.message for finding in plan.diagnostics if finding.code == "P128"]


def refused(*remedies: Remedy, **sections: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(SpecError) as raised:
        plan_with(*remedies, **sections)
    return [(one.code, one.message, one.help) for one in raised.value.diagnostics]


def test_what_is_asked_for_is_handed_on() -> None:
    plan = plan_with(*EVERY)
    given = handed(plan)

    assert plan.lowered.lowering is Lowering.EXTENSION
    assert plan.lowered.remedies == EVERY
    assert given["remedies"] == ["weak_aux_outputs", "one_capture_stream", "kv_from_measurement"]
    assert given["sha256"] == digest(given)
    assert idle(plan) == []


@pytest.mark.parametrize("remedy", EVERY)
def test_each_switch_is_its_own(remedy: Remedy) -> None:
    plan = plan_with(remedy)

    assert handed(plan)["remedies"] == [remedy]
    assert plan.lowered.env.get(STARTUP_PLAN_VARIABLE) == ("1" if remedy is Remedy.KV_FROM_MEASUREMENT else None)
    assert plan.to_json()["remedies"] == [remedy]


def test_without_one_the_plan_says_nothing_of_them() -> None:
    plan = plan_with(engine={"version": "0.33.0", "lowering": "extension"})

    assert plan.lowered.remedies == ()
    assert sorted(handed(plan)) == ["engine", "format", "managers", "sha256"]
    assert "remedies" not in plan.to_json()


def test_a_remedy_alone_makes_auto_take_the_extension() -> None:
    listed: Json = {"speculative": None, "compilation": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16]}}

    assert plan_with(**listed).lowered.lowering is Lowering.LEGACY
    assert plan_with(Remedy.KV_FROM_MEASUREMENT, **listed).lowered.lowering is Lowering.EXTENSION
    assert plan_with(Remedy.ONE_CAPTURE_STREAM, **listed).lowered.lowering is Lowering.LEGACY  # nothing for it to do


def test_a_kept_kv_cache_is_of_one_utilization_and_environment() -> None:
    """The engine's digest leaves both out, so that the hand-off, which is in it, has to tell them apart."""
    environment = {"version": "0.33.0", "env": {"NCCL_BUFFSIZE": 4096}}
    sections: tuple[Json, ...] = ({}, {"memory": {"gpu_memory_utilization": 0.8}}, {"engine": environment})
    kept = [handed(plan_with(Remedy.KV_FROM_MEASUREMENT, **one)) for one in sections]

    assert len({one["measured_for"] for one in kept}) == len({one["sha256"] for one in kept}) == 3
    assert kept[0] == handed(plan_with(Remedy.KV_FROM_MEASUREMENT, serve={"port": 9000}))
    assert "measured_for" not in handed(plan_with(Remedy.ONE_CAPTURE_STREAM))


@pytest.mark.parametrize(
    ("remedy", "sections", "because"),
    [
        (Remedy.WEAK_AUX_OUTPUTS, {"compilation": {}}, "pieces of a compiled model"),
        (Remedy.WEAK_AUX_OUTPUTS, {"speculative": None}, "hands no auxiliary hidden states"),
        (
            Remedy.WEAK_AUX_OUTPUTS,
            {"compilation": {**BREAKABLE, "prefill_cudagraph_capture_token_sizes": []}},
            "no PIECEWISE graph of the target",
        ),
        (Remedy.ONE_CAPTURE_STREAM, {"speculative": None}, "fewer than two graph managers"),
        (Remedy.KV_FROM_MEASUREMENT, {"memory": {"kv_cache_memory_bytes": "8GiB"}}, "pins the KV cache already"),
    ],
)
def test_a_remedy_with_nothing_to_do_is_said_and_left_out(remedy: Remedy, sections: Json, because: str) -> None:
    plan = plan_with(remedy, **sections)

    assert len(idle(plan)) == 1
    assert because in idle(plan)[0]
    assert plan.lowered.remedies == ()
    assert STARTUP_PLAN_VARIABLE not in plan.lowered.env


@pytest.mark.parametrize("remedy", EVERY)
def test_another_lowering_is_refused(remedy: Remedy) -> None:
    message = f"`remedies.{remedy}` needs the worker extension, and the lowering is `legacy`"

    assert refused(remedy, engine={"version": "0.33.0", "lowering": "legacy"}) == [
        ("R116", message, "write `engine.lowering: extension`")
    ]


@pytest.mark.parametrize(
    "sections", [{"engine": {"version": "0.32.0"}}, {"compilation": {"cudagraph_mode": "NONE"}, "speculative": None}]
)
def test_where_no_extension_can_be_taken_it_is_to_be_deleted(sections: Json) -> None:
    [(code, _, help_text)] = refused(Remedy.KV_FROM_MEASUREMENT, **sections)

    assert (code, help_text) == ("R116", "delete it")


def test_the_engines_own_variable_beside_the_remedy_is_refused() -> None:
    engine = {"version": "0.33.0", "env": {STARTUP_PLAN_VARIABLE: 0}}

    assert ("S212", "delete one of the two") in [
        (code, help_text) for code, _, help_text in refused(Remedy.KV_FROM_MEASUREMENT, engine=engine)
    ]
    assert "S212" not in [finding.code for finding in plan_with(engine=engine).diagnostics]


@pytest.mark.parametrize("name", ["stepwise_draft_logits", "indexer_row_chunks"])
def test_the_others_are_not_there_yet(name: str) -> None:
    assert refused(remedies={name: True}) == [("R117", f"`remedies.{name}` has no effect yet", "delete it")]
