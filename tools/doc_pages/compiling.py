"""Compiling specs for the documentation: in this process, from files and values alone.

Neither the installed engine nor the model cache, the hub or the shell's variables are looked at, so a page is the
same on every machine.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servespec.compiler.engine import CPU_DISTRIBUTION, engine_of_facts
from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.facts.engine_fields import table, versions
from servespec.compiler.model import Model, model_of
from servespec.compiler.pipeline import CompileRequest, compile_spec
from servespec.compiler.plan import Plan
from servespec.presets.catalog import Preset, model_facts, without_cost
from servespec.runtime.gather import CPU_ENGINE_VERSION
from servespec.runtime.measured_files import curve_profile
from servespec.schema.parse import parse_spec
from servespec.schema.source import SpecSource, read_source
from servespec.schema.spec import ServingSpec

Config = Mapping[str, Any]
_Input = Mapping[str, str | None]


def plan_of_values(spec: Mapping[str, Any], target: Config, *, draft: Config | None = None, with_stock: bool) -> Plan:
    """The plan of a spec given as values, for configs given as values; a draft model may be left unknown."""
    source = read_source(json.dumps(spec), "spec")
    return _plan(source, _parsed(source), target, draft, with_stock=with_stock)


def plan_of_file(path: Path) -> Plan:
    """The plan of a file whose models, and curve if it names one, lie beside it, with the stock engine's."""
    return plan_of_text(path.read_bytes(), path)


def plan_of_text(text: str | bytes, path: Path) -> Plan:
    """The same of a text that would lie at ``path``."""
    source = read_source(text, str(path))
    spec = _parsed(source)
    draft = spec.speculative.model if spec.speculative else None
    draft_config = _config(path, draft) if draft else None
    inputs = _input(path, spec.model.id), _input(path, draft) if draft else None
    return _plan(source, spec, _config(path, spec.model.id), draft_config, inputs=inputs, with_stock=True)


def plan_of_preset(preset: Preset) -> Plan:
    """The plan of a preset, from the facts that come with it, for the newest engine that serves it."""
    source = read_source(without_cost(preset.text).encode(), preset.name)
    spec = _parsed(source)
    draft = spec.speculative.model if spec.speculative else None
    return _plan(source, spec, _shipped(spec.model.id), _shipped(draft) if draft else None, with_stock=False)


def _shipped(model: str) -> Config:
    facts = model_facts(model)
    assert facts is not None, model
    return facts.config


def _config(spec: Path, folder: str) -> Config:
    data: dict[str, Any] = json.loads(_config_file(spec, folder).read_bytes())
    return data


def _input(spec: Path, folder: str) -> _Input:
    """The digest that a curve's model is compared with."""
    digest = hashlib.sha256(_config_file(spec, folder).read_bytes()).hexdigest()
    return {"id": folder, "commit": None, "config_sha256": digest}


def _config_file(spec: Path, folder: str) -> Path:
    return spec.parent / folder / "config.json"


def _parsed(source: SpecSource) -> ServingSpec:
    parsed = parse_spec(source)
    assert parsed.spec is not None, parsed.diagnostics
    return parsed.spec


def _plan(
    source: SpecSource,
    spec: ServingSpec,
    target: Config,
    draft: Config | None,
    *,
    inputs: tuple[_Input, _Input | None] = ({}, None),
    with_stock: bool,
) -> Plan:
    on_cpu = spec.hardware.gpu == "cpu"
    version = spec.engine.version or (CPU_ENGINE_VERSION if on_cpu else versions()[-1])
    model = model_of(target, version)
    return compile_spec(
        CompileRequest(
            spec=spec,
            source=source,
            engine=engine_of_facts(version, CPU_DISTRIBUTION) if on_cpu else engine_of_facts(version),
            table=table(version),
            device=DEVICES[str(spec.hardware.gpu)],
            target=model,
            draft=model_of(draft, version) if draft else _drafts_itself(spec, model),
            model_input=inputs[0],
            draft_input=inputs[1],
            with_stock=with_stock,
            profile=curve_profile(spec, source),
        )
    )


def _drafts_itself(spec: ServingSpec, target: Model) -> Model | None:
    """The target, where it drafts with weights of its own."""
    section = spec.speculative
    return target if section is not None and section.model is None else None
