"""From what the command line says to a finished bench: arms compiled, all refusals first, then the measuring."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from servespec import __version__
from servespec.compiler.resolve.request import max_model_len
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.bench.arms import Arm, arm_of
from servespec.runtime.bench.bench_rules import DESIGN_REFUSED
from servespec.runtime.bench.client_process import bench_client
from servespec.runtime.bench.design import BenchDesign, design_findings, labels_of
from servespec.runtime.bench.observation import observed
from servespec.runtime.bench.results import BENCH_FORMAT, open_results
from servespec.runtime.bench.servers import arm_up
from servespec.runtime.bench.session import Bench, OnBenchEvent, Warned, run_bench
from servespec.runtime.bench.stopping import stopped_by_signals
from servespec.runtime.bench.tokenizer import tokenizer_findings
from servespec.runtime.gather import Options
from servespec.runtime.health import loopback_of
from servespec.runtime.launch_folder import launch_folder
from servespec.runtime.machine import made_on, this_command
from servespec.runtime.serving import serving_of
from servespec.runtime.spec_file import read_spec
from servespec.schema.spec import ServingSpec
from servespec.schema.values import Refusal, parse_bytes

_SIDE_BY_SIDE_UTILIZATION = 0.05
"""The engine compares free memory with this share even where the KV cache is pinned, and others have memory too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a bench command asks for; ``pass_on`` goes to each `servespec serve`."""

    spec: str
    design: BenchDesign
    options: Options
    output: Path
    folder: Path
    pass_on: tuple[str, ...] = ()


def bench(wanted: Wanted, on_event: OnBenchEvent) -> Mapping[str, Any]:
    """Runs a bench, or what is left of it, and gives the results document.

    Raises SpecError where it is refused, an arm cannot be served or the client fails, and Stopped where a signal ends
    it; no server is left then.
    """
    if wanted.spec == "-":
        raise SpecError([_refused("SPEC", "a bench serves its spec many times", "write it to a file")])
    names = wanted.design.arms
    design = replace(wanted.design, arms=labels_of(names))
    arms = compiled_arms(wanted, names, design)
    results = open_results(wanted.output, _head(wanted, design, arms))
    if warnings := tuple(tokenizer_findings(arms)):
        on_event(Warned(warnings))
    hosts = [loopback_of(arm.plan.resolution.request.spec.serve.host) for arm in arms]
    with (
        stopped_by_signals() as stops,
        launch_folder(wanted.folder),
        bench_client(wanted.folder / "client.log", hosts) as client,
    ):
        run_bench(
            Bench(
                design=design,
                arms={arm.label: arm for arm in arms},
                folder=wanted.folder,
                arm_up=partial(arm_up, stops=stops, pass_on=wanted.pass_on),
                client=client,
                observe=lambda server, run: observed(server, client.process.pid, run),
                on_event=on_event,
            ),
            results,
        )
    return results.document()


def compiled_arms(wanted: Wanted, names: Sequence[str], design: BenchDesign) -> list[Arm]:
    """Every arm with its plan, once the design fits each and this machine can serve them all."""
    if not names:
        raise SpecError([_refused("--arms", "no arm is named", "write `--arms stock,extension`")])
    arms = [
        arm_of(name, label, wanted.spec, wanted.options, further_settings(design))
        for name, label in zip(names, design.arms, strict=True)
    ]
    findings: dict[str, Diagnostic] = {}
    for arm in arms:
        resolution = arm.plan.resolution
        limit = max_model_len(resolution.request).value
        seqs = int(resolution.limits.max_num_seqs.value)
        findings |= {finding.message: finding for finding in design_findings(design, limit, seqs)}
    if findings:
        raise SpecError(list(findings.values()))
    for arm in arms:
        serving_of(arm.plan, wanted.folder)
    return arms


def further_settings(design: BenchDesign) -> tuple[str, ...]:
    """What holds for every arm: side by side, each has its KV cache pinned and asks for little else."""
    if design.side_by_side_kv_bytes is None:
        return ()
    return (
        f"memory.kv_cache_memory_bytes={design.side_by_side_kv_bytes}",
        f"memory.gpu_memory_utilization={_SIDE_BY_SIDE_UTILIZATION}",
    )


def parsed_list(option: str, text: str) -> tuple[str, ...]:
    """The words of a list with commas."""
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise SpecError([_refused(option, f"`{text}` has an empty place", "separate values by single commas")])
    return words


def parsed_numbers(option: str, text: str) -> tuple[int, ...]:
    """The numbers of a list with commas."""
    words = parsed_list(option, text)
    wrong = [word for word in words if not re.fullmatch(r"\d{1,9}", word)]
    if wrong:
        raise SpecError([_refused(option, f"`{wrong[0]}` is not a whole number", f"write `{option} 1,16,64`")])
    return tuple(map(int, words))


def parsed_size(option: str, text: str | None) -> int | None:
    """A size such as `6GiB` in bytes."""
    if text is None:
        return None
    size = parse_bytes(text)
    if isinstance(size, Refusal):
        raise SpecError([_refused(option, size.reason, f"write {size.right_form}")])
    return int(size)


def passed_on(options: Options) -> tuple[str, ...]:
    """The words by which each `servespec serve` compiles as the bench does; settings go with the arm."""
    files = (("--model-config", options.model_config), ("--draft-config", options.draft_config))
    return (
        *(["--allow-code"] if options.allow_code else []),
        *(["--allow-unverified-engine"] if options.allow_unverified_engine else []),
        *(word for option, file in files if file is not None for word in (option, str(file))),
    )


def _refused(option: str, message: str, help_text: str) -> Diagnostic:
    return DESIGN_REFUSED.at(Place(option), message, help_text)


def _head(wanted: Wanted, design: BenchDesign, arms: Sequence[Arm]) -> dict[str, Any]:
    text = read_spec(wanted.spec, wanted.options.settings).own.text
    return {
        "format": BENCH_FORMAT,
        "what": "arms of one spec benched against each other in interleaved rounds, by vLLM's own bench client",
        "servespec": __version__,
        **made_on(this_command()),
        "spec_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "spec_text": text,
        "acceptance": acceptance_of(arms),
        "design": design.to_json(),
        "arms": {arm.label: arm.to_json() for arm in arms},
    }


def acceptance_of(arms: Sequence[Arm]) -> str:
    """Whether accepted drafts are those of trained weights, of a rule, or whether nothing is drafted."""
    specs = [arm.plan.resolution.request.spec for arm in arms]
    drafting = [spec for spec in specs if spec.speculative is not None]
    if not drafting:
        return "none"
    return "modelled" if any(_is_modelled(spec) for spec in drafting) else "measured"


def _is_modelled(spec: ServingSpec) -> bool:
    rule = spec.speculative.engine_fields.get("rejection_sample_method") if spec.speculative else None
    return rule == "synthetic" or spec.model.load_format == "dummy"
