"""The GPU and the engine version that a spec names, against those that there are facts about."""

from collections.abc import Iterator

from servespec.compiler.facts.devices import DEVICES, device_named
from servespec.compiler.facts.engine_fields import versions
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime import config_rules as rules
from servespec.schema.nearest import nearest_by_words
from servespec.schema.parse import PLACEHOLDER
from servespec.schema.source import SpecSource
from servespec.schema.spec import DeviceFile, ServingSpec


def unsupported(spec: ServingSpec, source: SpecSource, *, allow_unverified_engine: bool) -> Iterator[Diagnostic]:
    """A GPU or a version that nothing is known of, as far as the spec names them; no file or machine is read."""
    gpu, version = spec.hardware.gpu, spec.engine.version
    if not isinstance(gpu, DeviceFile) and gpu != PLACEHOLDER and device_named(gpu) is None:
        yield _unknown_device(gpu, source.place_of(("hardware", "gpu")))
    if version is not None and version not in versions() and not allow_unverified_engine:
        yield unknown_version(version, source.place_of(("engine", "version")))


def _unknown_device(gpu: str, place: Place) -> Diagnostic:
    near = nearest_by_words(gpu, DEVICES)
    suggestion = f"did you mean `{near[0]}`? " if near else ""
    message = f"`{gpu}` is not in the device table"
    return rules.R004.at(place, message, f"{suggestion}It knows {', '.join(DEVICES)}; or name `{{device: FILE}}`")


def unknown_version(version: str, place: Place) -> Diagnostic:
    """The version that a spec names, or the one that is installed."""
    from servespec.runtime.installed_engine import nearest_version

    known = nearest_version(version)
    message = f"no facts about vLLM `{version}`; the nearest supported version is `{known}`"
    help_text = f"write `version: {known}`, or pass `--allow-unverified-engine` for an estimate"
    return rules.R005.at(place, message, help_text)
