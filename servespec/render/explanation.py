"""What a field, a diagnostic code or an engine setting means, for `explain`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import fill

from pydantic.fields import FieldInfo

from servespec.compiler.engine_homes import VARIABLE_HOMES, config_home, flag_home, section_fields
from servespec.compiler.facts.devices import DEVICES, Device, device_named, is_cpu, is_sm100
from servespec.compiler.facts.engine_fields import EngineField, EngineTable, Setting, table, versions
from servespec.diagnostics import Rule
from servespec.render.explained_words import every_word, fields_taking, words_taken
from servespec.render.rules import every_rule
from servespec.schema.called import meant_fields
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
    engine = table(versions()[-1])
    if name.startswith("-"):
        return _flag_page(name, engine) or _unknown(name)
    field = _fields().get(_without_places(name)) or _by_last_name(name)
    if field is not None:
        return Explanation(True, _field_page(field, engine))
    return (
        _value_page(name, engine)
        or _variable_page(name, engine)
        or _engine_page(name, engine)
        or _flag_page(name, engine)
        or _unknown(name)
    )


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
    """By the path without the places of lists, which findings have and nobody types."""
    return {_without_places(field.path): field for field in spec_fields()}


def _without_places(path: str) -> str:
    return re.sub(r"\[\d*\]", "", path)


def _by_last_name(name: str) -> SpecField | None:
    bare = name.replace("-", "_")
    return next((field for field in spec_fields() if field.name == bare), None)


def _field_page(field: SpecField, engine: EngineTable, *more: str) -> str:
    parts = [field.path, field.text]
    words = words_taken(field.path, engine)
    if words:
        parts.append("it takes " + ", ".join(f"`{word}`" for word in words))
    if field.info.examples:
        parts.append("such as " + ", ".join(f"`{example}`" for example in field.info.examples))
    section = field.section
    if section is not None:
        parts.append("its fields: " + ", ".join(section.model_fields))
    if section is not None and issubclass(section, OpenSection):
        parts.append(f"and the engine's own fields of {', '.join(section.engine_configs)}")
    return _page([*(_filled(part) for part in parts), *more])


def _filled(text: str) -> str:
    return fill(text, _WIDTH, break_on_hyphens=False)


def _value_page(name: str, engine: EngineTable) -> Explanation | None:
    """A word that one or several fields take, or a GPU."""
    device = device_named(name)
    parts = [] if device is None else [f"`{device.name}`, a value of hardware.gpu", *_device_parts(device)]
    for path, words in VALUE_DOCS.items():
        if name in words:
            parts += [f"`{name}`, a value of {path}", fill(words[name], _WIDTH)]
    others = [path for path in fields_taking(name, engine) if not _has_sentence(path, name)]
    if others:
        also = "also a value" if parts else f"`{name}`, a value"
        parts.append(_filled(f"{also} of {', '.join(others)}; `servespec explain {others[0]}` says what that is"))
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
        return Explanation(True, _setting_page(f"{home}", field))
    return None


def _flag_page(name: str, engine: EngineTable) -> Explanation | None:
    """A flag in any spelling: its field where a spec has one, and where the engine declares it."""
    flag = engine.flag(name)
    if flag is None:
        return None
    home = flag_home(flag) or f"engine.args.{flag.long[2:]}"
    spelled = ", ".join(f"`{one}`" for one in flag.spellings)
    where = _filled(f"vLLM {engine.version}: {spelled} ({flag.file}:{flag.line})")
    field = _fields().get(home)
    if field is not None:
        return Explanation(True, _field_page(field, engine, where))
    found = _engine_field(home, engine)
    if found is not None:
        return Explanation(True, _setting_page(home, found, where))
    return Explanation(True, _page([home, _filled(f"type: {flag.type}"), f"default: {flag.default}", where]))


def _variable_page(name: str, engine: EngineTable) -> Explanation | None:
    """A variable of the engine: the field that stands for it, else how it is set."""
    variable = engine.variable(name)
    if variable is None:
        return None
    source = f" ({variable.file}:{variable.line})" if variable.file else ""
    where = f"vLLM {engine.version}: `{name}`{source}"
    field = _fields().get(VARIABLE_HOMES.get(name, ""))
    if field is not None:
        return Explanation(True, _field_page(field, engine, where))
    if variable.secret:
        how = f"`{name}` may hold a secret: set it in the shell that starts the server, not in a spec"
        return Explanation(True, _page([_filled(how), where]))
    lines = [f"engine.env.{name}", _filled(f"type: {variable.type}"), f"default: {variable.default}"]
    return Explanation(True, _page([*lines, _relevance(variable), where]))


def _engine_field(name: str, engine: EngineTable) -> EngineField | None:
    section, _, key = name.rpartition(".")
    for section_name, model in sections():
        if issubclass(model, OpenSection) and section in ("", section_name):
            found = next((field for field in section_fields(model, engine) if field.name == key), None)
            if found is not None:
                return found
    return None


def _setting_page(home: str, field: EngineField, *more: str) -> str:
    lines = [home, _filled(f"type: {field.type}"), f"default: {field.default}", _relevance(field)]
    return _page([*lines, f"vLLM: {field.config}.{field.name} ({field.file}:{field.line})", *more])


def _relevance(setting: Setting) -> str:
    relevant = {True: "changes the plan", False: "does not change the plan", None: "may change the plan"}
    return f"it {relevant[setting.plan_relevant]}"


def _has_sentence(path: str, word: str) -> bool:
    return word in VALUE_DOCS.get(path, {})


def explained_names() -> tuple[str, ...]:
    """Everything that :func:`explanation` has a page for, in the order in which it is looked for."""
    engine = table(versions()[-1])
    rules = [name for rule in every_rule() for name in (rule.code, rule.name)]
    values = sorted({*(word for words in VALUE_DOCS.values() for word in words), *every_word(engine), *DEVICES})
    variables = [name for name in engine.variables() if not name.endswith("*")]
    flags = [spelling for name in engine.flags() if (flag := engine.flag(name)) for spelling in flag.spellings]
    return tuple(dict.fromkeys((*_fields(), *rules, *values, *variables, *flags)))


def _unknown(name: str) -> Explanation:
    last = {path.rpartition(".")[2]: path for path in _fields()}
    section, _, key = name.rpartition(".")
    meant = meant_fields(section, key)
    near = meant or [last.get(one, one) for one in nearest(key, [*last, *explained_names()])]
    suggestion = f"; did you mean {', '.join(f'`{one}`' for one in near)}?" if near else ""
    return Explanation(False, f"`{name}` is no field, value, code or engine setting{suggestion}\n")


def _page(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
