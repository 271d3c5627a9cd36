"""Gathers what compiling depends on and the compiler may not look up: the file, the engine, the device, the configs."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from servespec.compiler.checkpoint import Checkpoint
from servespec.compiler.config_checks import ReadConfig, draft_findings, target_findings
from servespec.compiler.engine import CPU_DISTRIBUTION, Engine, engine_of_facts
from servespec.compiler.engine_homes import VARIABLE_HOMES
from servespec.compiler.facts.devices import DEVICE_SCHEMA, Device, device_from_json, device_named
from servespec.compiler.facts.engine_fields import table, versions
from servespec.compiler.facts.model_traits import laid_over, text_config
from servespec.compiler.model import Model, model_of
from servespec.compiler.pipeline import CompileRequest
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place, SpecError, has_errors
from servespec.runtime import config_rules as rules
from servespec.runtime.checkpoint_files import CheckpointError, read_checkpoint
from servespec.runtime.measured_files import curve_profile, read_measured
from servespec.runtime.model_config import ModelConfig, Wanted, load_model_config, names_folder
from servespec.runtime.shipped_facts import shipped_findings
from servespec.runtime.spec_file import base_folder, further_findings
from servespec.runtime.supported import unknown_version, unsupported
from servespec.schema.parse import parse_spec
from servespec.schema.source import SpecSource
from servespec.schema.spec import DeviceFile, ServingSpec

CPU_ENGINE_VERSION = "0.32.0"
"""The CPU build that the `cpu` extra installs."""


_ENGINE_PREFIX = "VLLM_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about compiling."""

    settings: tuple[str, ...] = ()
    allow_code: bool = False
    allow_unverified_engine: bool = False
    model_config: Path | None = None
    draft_config: Path | None = None
    measured: tuple[Path, ...] = ()
    with_stock: bool = False


def compile_request(source: SpecSource, options: Options) -> CompileRequest:
    """Everything that :func:`servespec.compiler.pipeline.compile_spec` takes.

    Raises SpecError where the spec does not parse, or where engine, device or configs are not to be had; what the
    spec itself does wrong is told beside it.
    """
    parsed = parse_spec(source)
    spec = parsed.spec
    further = partial(
        further_findings,
        spec,
        source,
        options.allow_code,
        allow_unverified_engine=options.allow_unverified_engine,
    )
    if spec is None or has_errors(parsed.diagnostics):
        raise SpecError([*parsed.diagnostics, *further()])
    try:
        return _gathered(spec, source, options, parsed.diagnostics)
    except SpecError as error:
        raise SpecError([*error.diagnostics, *further()]) from None


def _gathered(
    spec: ServingSpec, source: SpecSource, options: Options, parsed: tuple[Diagnostic, ...]
) -> CompileRequest:
    refused = tuple(unsupported(spec, source, allow_unverified_engine=options.allow_unverified_engine))
    if refused:
        raise SpecError([*parsed, *refused])
    device = _device(spec, source)
    engine, findings = choose_engine(spec, source, options.allow_unverified_engine)
    inherited = tuple(shell_findings(spec, engine.facts_version, os.environ))
    target = _load(spec.model.id, spec.model.revision, ("model", "id"), source, options.model_config, "--model-config")
    draft = _draft(spec, source, options)
    config = laid_over(target.data, spec.model.hf_overrides)
    odd = [*target_findings(ReadConfig(config, spec, source), engine.facts_version)]
    if draft is not None:
        odd += draft_findings(draft.data, source.place_of(("speculative", "model")))
    files, unreadable = _checkpoint(target, config, source.place_of(("model", "id")))
    shipped = _shipped_findings(target, draft, source)
    model = model_of(config, engine.facts_version, files)
    return CompileRequest(
        spec=spec,
        source=source,
        engine=engine,
        table=table(engine.facts_version),
        device=device,
        target=model,
        draft=_draft_model(draft, engine.facts_version) if draft else _drafting_target(spec, model),
        model_input=_input(target),
        draft_input=_input(draft) if draft else None,
        profile=curve_profile(spec, source),
        allow_code=options.allow_code,
        with_stock=options.with_stock,
        **read_measured(options.measured),
        found=(*parsed, *findings, *inherited, *odd, *unreadable, *shipped),
    )


def shell_findings(spec: ServingSpec, version: str, environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Variables of the shell that would change the plan and that the spec does not set."""
    engine = table(version)
    for name in sorted(environ):
        variable = engine.variable(name) if name.startswith(_ENGINE_PREFIX) else None
        if variable is None or variable.plan_relevant is False or name in spec.engine.env:
            continue
        home = VARIABLE_HOMES.get(name, f"engine.env.{name}")
        message = f"the shell sets `{name}`, which changes the plan"
        yield rules.R007.at(Place("the environment"), message, f"unset it, or write `{home}` in the spec")


# Device


def _device(spec: ServingSpec, source: SpecSource) -> Device:
    gpu = spec.hardware.gpu
    if isinstance(gpu, DeviceFile):
        return _device_from_file(gpu.device, source)
    device = device_named(gpu)
    assert device is not None, "a name that is not in the table is refused before"
    return device


def _device_from_file(name: str, source: SpecSource) -> Device:
    import jsonschema

    place = source.place_of(("hardware", "gpu", "device"))
    help_text = "`servespec doctor --device-file FILE` writes one on the machine that it describes"
    try:
        data = json.loads((base_folder(source) / name).read_bytes())
        jsonschema.validate(data, dict(DEVICE_SCHEMA))
    except OSError as error:
        message = f"cannot read the device file `{name}`: {(error.strerror or 'unreadable').lower()}"
        raise SpecError([rules.R003.at(place, message, help_text)]) from None
    except (ValueError, RecursionError):
        raise SpecError([rules.R003.at(place, f"the device file `{name}` is not JSON", help_text)]) from None
    except jsonschema.ValidationError as error:
        message = f"the device file `{name}` is not one: {error.message}"
        raise SpecError([rules.R003.at(place, message, help_text)]) from None
    return device_from_json(data)


# Engine


def choose_engine(
    spec: ServingSpec, source: SpecSource, allow_unverified: bool
) -> tuple[Engine, tuple[Diagnostic, ...]]:
    """The version that the spec names, else the installed one, else the newest supported."""
    distribution = CPU_DISTRIBUTION if spec.hardware.gpu == "cpu" else "vllm"
    wanted = spec.engine.version
    if wanted is not None and wanted in versions():
        return engine_of_facts(wanted, distribution), ()
    if wanted is not None:
        return _unverified(wanted, distribution, source, allow_unverified)
    return _installed_or_newest(distribution, source, allow_unverified)


def _installed_or_newest(
    distribution: str, source: SpecSource, allow_unverified: bool
) -> tuple[Engine, tuple[Diagnostic, ...]]:
    from servespec.runtime.installed_engine import find_installed_engine, matching_facts_version

    installed = find_installed_engine(distributions=(distribution,))
    if installed is None:
        version = CPU_ENGINE_VERSION if distribution == CPU_DISTRIBUTION else versions()[-1]
        return engine_of_facts(version, distribution), ()
    facts_version = matching_facts_version(installed)
    if facts_version is None:
        return _unverified(installed.version, distribution, source, allow_unverified)
    engine = replace(
        engine_of_facts(facts_version, distribution),
        version=installed.version,
        has_split_fields=installed.has_split_fields,
        has_extension_hook=installed.has_worker_extension_hook,
    )
    return engine, ()


def _unverified(
    version: str, distribution: str, source: SpecSource, allow_unverified: bool
) -> tuple[Engine, tuple[Diagnostic, ...]]:
    from servespec.runtime.installed_engine import nearest_version

    nearest_known = nearest_version(version)
    place = source.place_of(("engine", "version"))
    if not allow_unverified:
        raise SpecError([unknown_version(version, place)])
    finding = rules.R006.at(place, f"vLLM `{version}` is planned with the facts of `{nearest_known}`")
    engine = replace(
        engine_of_facts(nearest_known, distribution), version=version, verified=False, has_extension_hook=False
    )
    return engine, (finding,)


# Models


def _draft(spec: ServingSpec, source: SpecSource, options: Options) -> ModelConfig | None:
    """The draft model's config; None where none is named, or where it cannot be found."""
    section = spec.speculative
    if section is None or (section.model is None and options.draft_config is None):
        return None
    name = section.model or spec.model.id
    revision = section.engine_fields.get("revision")
    try:
        return _load(name, revision, ("speculative", "model"), source, options.draft_config, "--draft-config")
    except SpecError:
        if options.draft_config is not None:
            raise
        return None


def _checkpoint(
    found: ModelConfig, config: Mapping[str, Any], place: Place
) -> tuple[Checkpoint | None, tuple[Diagnostic, ...]]:
    """What the files beside a config hold; one that cannot be read is told."""
    if found.folder is None:
        return None, ()
    layers = text_config(config).get("num_hidden_layers")
    try:
        return read_checkpoint(found.folder, layers if isinstance(layers, int) else None), ()
    except CheckpointError as error:
        return None, (rules.R012.at(place, str(error), "download the model again; until then its config alone counts"),)
    except OSError as error:
        message = f"the weights in `{found.id}` cannot be read: {(error.strerror or 'unreadable').lower()}"
        return None, (rules.R012.at(place, message, "make them readable; until then the config alone counts"),)


def _shipped_findings(target: ModelConfig, draft: ModelConfig | None, source: SpecSource) -> tuple[Diagnostic, ...]:
    """What is to be said of configs that the package has facts of."""
    findings = shipped_findings(target, source.place_of(("model", "id")))
    if draft is None:
        return findings
    return (*findings, *shipped_findings(draft, source.place_of(("speculative", "model"))))


def _draft_model(found: ModelConfig, version: str) -> Model:
    """The draft model; damaged files of it are the engine's to tell."""
    files, _ = _checkpoint(found, found.data, Place("the draft model"))
    return model_of(found.data, version, files)


def _drafting_target(spec: ServingSpec, target: Model) -> Model | None:
    """MTP and DSpark without a model of their own draft with the target's weights."""
    section = spec.speculative
    own = section is not None and section.model is None and section.method is not None
    return target if own and section is not None and section.method not in ("eagle", "eagle3", "dflash") else None


def _load(
    name: str,
    revision: Any,
    path: tuple[str, str],
    source: SpecSource,
    named_file: Path | None,
    option: str,
) -> ModelConfig:
    return load_model_config(
        Wanted(
            id=name,
            revision=revision if isinstance(revision, str) else None,
            place=source.place_of(path),
            base=base_folder(source),
            named_file=named_file,
            option=option,
        )
    )


def _input(config: ModelConfig) -> Mapping[str, str | None]:
    return {"id": config.id, "commit": config.commit, "config_sha256": config.sha256}


def model_folders(plan: Plan) -> tuple[str, ...]:
    """The folders among the models that the launch of ``plan`` names, as it names them."""
    request = plan.resolution.request
    drafter = request.spec.speculative.model if request.spec.speculative is not None else None
    named = filter(None, (request.spec.model.id, drafter))
    return tuple(dict.fromkeys(one for one in named if names_folder(one, base_folder(request.source))))
