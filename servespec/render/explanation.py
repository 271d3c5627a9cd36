"""What a field, a diagnostic code or an engine setting means, for `explain`."""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import fill

from pydantic.fields import FieldInfo

from servespec.compiler.engine_homes import config_home, flag_home, section_fields
from servespec.compiler.facts.devices import DEVICES, Device, is_cpu, is_sm100
from servespec.compiler.facts.engine_fields import EngineField, EngineTable, table, versions
from servespec.diagnostics import Rule
from servespec.render.rules import every_rule
from servespec.schema.field_docs import description
from servespec.schema.nearest import nearest
from servespec.schema.parse import sections
from servespec.schema.spec import NESTED_SECTIONS, OpenSection, Section, ServingSpec
from servespec.schema.value_docs import VALUE_DOCS
from servespec.units import size_words

_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Explanation:
    found: bool
    text: str


def explanation(name: str) -> Explanation:
    """The page for a code such as `S201`, a field such as `scheduler.max_num_seqs`, a value such as `eagle3` or
    `h200`, or an engine flag."""
    rule = next((rule for rule in every_rule() if name in (rule.code, rule.name)), None)
    if rule is not None:
        return Explanation(True, _rule_page(rule))
    field = _fields().get(name) or _by_last_name(name)
    if field is not None:
        return Explanation(True, _field_page(field))
    engine = table(versions()[-1])
    return _value_page(name) or _engine_page(name, engine) or _unknown(name)


def _rule_page(rule: Rule) -> str:
    parts = [f"{rule.severity}[{rule.code}] {rule.name}: {rule.summary}", fill(rule.explanation, _WIDTH)]
    return _page([*parts, f"source: {rule.source}" if rule.source else ""])


@dataclass(frozen=True, slots=True)
class SpecField:
    """A hand-written field of the spec: its path, the model it stands in, and pydantic's record of it."""

    path: str
    owner: type[Section]
    info: FieldInfo

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def section(self) -> type[Section] | None:
        """The model of a section; None for a field that is a value."""
        return dict(sections()).get(self.path)

    @property
    def text(self) -> str:
        own = description(self.owner, self.name)
        return own or " ".join((self.section.__doc__ or "").split() if self.section else ())


def spec_fields() -> Iterator[SpecField]:
    """Every hand-written field of the spec, a section before its own fields, those inside of fields last."""
    models = dict(sections())
    for name, info in ServingSpec.model_fields.items():
        yield SpecField(name, ServingSpec, info)
        model = models.get(name)
        if model is not None:
            yield from (SpecField(f"{name}.{key}", model, field) for key, field in model.model_fields.items())
    for path, model in NESTED_SECTIONS:
        yield from (SpecField(f"{path}.{key}", model, field) for key, field in model.model_fields.items())


def _fields() -> dict[str, SpecField]:
    return {field.path: field for field in spec_fields()}


def _by_last_name(name: str) -> SpecField | None:
    bare = name.removeprefix("--").replace("-", "_")
    return next((field for field in spec_fields() if field.name == bare), None)


def _field_page(field: SpecField) -> str:
    parts = [field.path, field.text]
    if field.info.examples:
        parts.append("such as " + ", ".join(f"`{example}`" for example in field.info.examples))
    section = field.section
    if section is not None:
        parts.append("its fields: " + ", ".join(section.model_fields))
    if section is not None and issubclass(section, OpenSection):
        parts.append(f"and the engine's own fields of {', '.join(section.engine_configs)}")
    return _page([fill(part, _WIDTH) for part in parts])


def _value_page(name: str) -> Explanation | None:
    """A word that one or several fields take, or a GPU."""
    device = DEVICES.get(name.lower())
    parts = [] if device is None else [f"`{device.name}`, a value of hardware.gpu", *_device_parts(device)]
    for path, words in VALUE_DOCS.items():
        if name in words:
            parts += [f"`{name}`, a value of {path}", fill(words[name], _WIDTH)]
    return Explanation(True, _page(parts)) if parts else None


def _device_parts(device: Device) -> list[str]:
    major, minor = device.compute_capability
    if is_cpu(device):
        return ["The embedded engine, vLLM's CPU build: no graphs, and no memory of its own."]
    shared = ", shared with the machine" if device.unified_memory else ""
    said = (
        f"{device.device_name}: compute capability {major}.{minor}, {size_words(device.total_memory_bytes)} as torch "
        f"reports it{shared}, {device.sm_count} multiprocessors."
    )
    defaults = "split grids up to the step budget" if is_sm100(device) else "the engine's own sizes"
    return [fill(said, _WIDTH), fill(f"Where a spec says nothing of capture sizes, it gets {defaults}.", _WIDTH)]


def _engine_page(name: str, engine: EngineTable) -> Explanation | None:
    field = _engine_field(name, engine)
    if field is not None:
        home = config_home(field.config, field.name)
        return Explanation(True, _setting_page(f"{home}", field.config, field.name, str(field.type), field.file, field))
    flag = engine.flag(name)
    if flag is None:
        return None
    home = flag_home(flag) or f"engine.args.{flag.long[2:]}"
    where = f"vLLM {engine.version}: `{flag.long}` ({flag.file}:{flag.line})"
    return Explanation(True, _page([home, f"type: {flag.type}", where]))


def _engine_field(name: str, engine: EngineTable) -> EngineField | None:
    section, _, key = name.rpartition(".")
    for section_name, model in sections():
        if issubclass(model, OpenSection) and section in ("", section_name):
            found = next((field for field in section_fields(model, engine) if field.name == key), None)
            if found is not None:
                return found
    return None


def _setting_page(home: str, config: str, name: str, kind: str, file: str, field: EngineField) -> str:
    relevant = {True: "changes the plan", False: "does not change the plan", None: "may change the plan"}
    lines = [home, f"type: {kind}", f"default: {field.default}", f"it {relevant[field.plan_relevant]}"]
    return _page([*lines, f"vLLM: {config}.{name} ({file}:{field.line})"])


def _unknown(name: str) -> Explanation:
    last = {path.rpartition(".")[2]: path for path in _fields()}
    values = {word for words in VALUE_DOCS.values() for word in words} | set(DEVICES)
    names = [*last, *(rule.code for rule in every_rule()), *(rule.name for rule in every_rule()), *sorted(values)]
    near = [last.get(one, one) for one in nearest(name.rpartition(".")[2], names)]
    suggestion = f"; did you mean {', '.join(f'`{one}`' for one in near)}?" if near else ""
    return Explanation(False, f"`{name}` is no field, value, code or engine setting{suggestion}\n")


def _page(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
