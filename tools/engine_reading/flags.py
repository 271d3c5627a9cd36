"""The flags of ``vllm serve``: what each is spelled like, which config field it sets and what it takes.

The parser is built by statements such as ``group.add_argument("--x", "-y", **some_kwargs["field"])``, where
``some_kwargs = get_kwargs(SomeConfig)`` derives argparse settings from the class.  This module follows those
statements and the derivation (``vllm/engine/arg_utils.py: _compute_kwargs``) without running either.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from engine_reading.configs import ConfigClass, config_class
from engine_reading.default import default_of
from engine_reading.field_type import TypeJson, has_kind, is_kind, members_of, union
from engine_reading.source import Engine, Module, last_name

_ARG_UTILS = "vllm/engine/arg_utils.py"
_CLI_ARGS = "vllm/entrypoints/**/cli_args.py"
_PARSER = "vllm/utils/argparse_utils.py"
_INVERSES = {"--enable-": "--disable-", "--disable-": "--enable-"}
_SWITCHES = {"store_true", "store_false"}
# ``FlexibleArgumentParser.parse_args`` (vllm/utils/argparse_utils.py) rewrites ``-O3`` before it parses.
_REWRITTEN = {"optimization_level": ("-O",)}
_CASTS: dict[str, TypeJson] = {"int": "int", "float": "float", "str": "str"}


@dataclass(frozen=True)
class Flag:
    """``form``: switch (bare), boolean, value, optional_value, list, json or append.

    ``negations`` are the spellings that set a boolean flag to false.
    """

    name: str
    spellings: tuple[str, ...]
    negations: tuple[str, ...]
    form: str
    type: TypeJson
    default: Any
    config: str
    config_field: str
    nargs: str | int | None
    path: str
    line: int
    deprecated: str | None = None


@dataclass
class _Source:
    """What ``kwargs["field"]`` stands for, and what later statements changed in it."""

    config: str
    config_field: str
    changes: dict[str, ast.expr | None] = field(default_factory=dict)


@dataclass
class _Reader:
    """One function body that adds arguments; ``kwargs`` are the variables made by ``get_kwargs``."""

    module: Module
    engine: Engine
    configs: dict[str, ConfigClass]
    kwargs: dict[str, str] = field(default_factory=dict)
    sources: dict[tuple[str, str], _Source] = field(default_factory=dict)
    aliases: dict[str, _Source] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    flags: list[Flag] = field(default_factory=list)

    def read(self, function: ast.FunctionDef) -> list[Flag]:
        for statement in _in_order(function.body):
            if isinstance(statement, ast.Assign):
                self._assigned(statement.targets[0], statement.value)
            elif isinstance(statement, ast.AugAssign):
                continue
            elif isinstance(statement, ast.Expr) and _is_call_of(statement.value, "add_argument"):
                self._added(statement.value)
        return self.flags

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._named(target.id, value)
        elif isinstance(target, ast.Subscript) and (source := self._source(target.value)):
            source.changes[str(_text(target.slice))] = value

    def _named(self, name: str, value: ast.expr) -> None:
        if _is_call_of(value, "get_kwargs"):
            self.kwargs[name] = last_name(value.args[0])
        elif _is_call_of(value, "add_argument_group"):
            self.groups[name] = str(next((_text(k.value) for k in value.keywords if k.arg == "title"), ""))
        elif source := self._source(value):
            self.aliases[name] = source

    def _source(self, node: ast.expr) -> _Source | None:
        """The field that ``kwargs["field"]``, ``get_kwargs(C)["field"]`` or an alias of them means."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id)
        if not isinstance(node, ast.Subscript):
            return None
        config = self._config_of(node.value)
        key = (config, str(_text(node.slice)))
        return self.sources.setdefault(key, _Source(*key)) if config else None

    def _config_of(self, node: ast.expr) -> str:
        if _is_call_of(node, "get_kwargs"):
            return last_name(node.args[0])
        return self.kwargs.get(node.id, "") if isinstance(node, ast.Name) else ""

    def _added(self, call: ast.Call) -> None:
        spellings = tuple(str(_text(one)) for one in call.args)
        if not all(one.startswith("-") for one in spellings):
            return
        explicit = {k.arg: k.value for k in call.keywords if k.arg}
        source = self._spread(call, explicit)
        self.flags.append(self._flag(spellings, source, explicit, self._group(call), call.lineno))

    def _spread(self, call: ast.Call, explicit: dict[str, ast.expr]) -> _Source | None:
        """The source behind ``**x`` or ``**{**x, "default": None}``; keys of the latter join ``explicit``."""
        spread = next((k.value for k in call.keywords if k.arg is None), None)
        if not isinstance(spread, ast.Dict):
            return self._source(spread) if spread is not None else None
        inner = None
        for key, value in zip(spread.keys, spread.values, strict=True):
            if key is None:
                inner = self._source(value)
            else:
                explicit[str(_text(key))] = value
        return inner

    def _group(self, call: ast.Call) -> str:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        return self.groups.get(owner.id, "") if isinstance(owner, ast.Name) else ""

    def _flag(
        self,
        spellings: tuple[str, ...],
        source: _Source | None,
        explicit: dict[str, ast.expr],
        group: str,
        line: int,
    ) -> Flag:
        name = _destination(spellings, explicit)
        settings = {**(source.changes if source else {}), **explicit}
        config, config_field = self._owner(name, source, group)
        kind, default = self._kind(config, config_field, source is not None, name, settings)
        form, nargs = _form(kind, settings, from_class=source is not None)
        value = self._default(default, settings)
        return Flag(
            name=name,
            spellings=(*spellings, *_REWRITTEN.get(name, ())),
            negations=_negations(spellings, form, self.engine),
            form=form,
            type=union([kind, "null"]) if value is None else kind,
            default=value,
            config=config,
            config_field=config_field,
            nargs=nargs,
            path=self.module.path,
            line=line,
        )

    def _owner(self, name: str, source: _Source | None, group: str) -> tuple[str, str]:
        if source is not None:
            return source.config, source.config_field
        fields = self.configs[group].fields if group in self.configs else {}
        return group if group in self.configs else "", name if name in fields else ""

    def _kind(
        self, config: str, config_field: str, from_class: bool, name: str, settings: dict[str, Any]
    ) -> tuple[TypeJson, Any]:
        """The type a value has, and the default the class gives."""
        if from_class:
            found = self.configs[config].fields[config_field]
            return found.type, found.default
        engine_args = self.configs["AsyncEngineArgs"].fields
        default = engine_args[name].default if name in engine_args else None
        return self._explicit_kind(name, settings), default if "default" in settings else None

    def _explicit_kind(self, name: str, settings: dict[str, Any]) -> TypeJson:
        if _is_boolean(settings) or _text(settings.get("action")) in _SWITCHES:
            return "bool"
        engine_args = self.configs["AsyncEngineArgs"].fields
        if name in engine_args:
            return engine_args[name].type
        cast = settings.get("type")
        return union([_CASTS.get(last_name(cast), "str") if cast is not None else "str", "null"])

    def _default(self, inherited: Any, settings: dict[str, ast.expr | None]) -> Any:
        written = settings.get("default")
        if written is not None and last_name(written) != "SUPPRESS":
            return default_of(written, self.module, self.engine)
        return False if _text(settings.get("action")) == "store_true" else inherited


def flags(engine: Engine, configs: dict[str, ConfigClass]) -> dict[str, Flag]:
    """Every flag of ``vllm serve``, by its destination name, sorted."""
    module = engine.module(_ARG_UTILS)
    cli = engine.module(_cli_args_path(engine))
    known = {**configs, **_argument_classes(module, engine), **_argument_classes(cli, engine)}
    found = [
        *_Reader(module, engine, known).read(_function(module, "EngineArgs", "add_cli_args")),
        *_Reader(module, engine, known).read(_function(module, "AsyncEngineArgs", "add_cli_args")),
        *_Reader(cli, engine, known).read(_function(cli, "", "make_arg_parser")),
        *_frontend_flags(cli, engine, known),
    ]
    by_name = {flag.name: flag for flag in sorted(found, key=lambda flag: flag.name)}
    return {name: _with_deprecation(flag, module, known) for name, flag in by_name.items()}


def _cli_args_path(engine: Engine) -> str:
    return next(p for p in engine.paths(_CLI_ARGS) if "FrontendArgs" in engine.module(p).names)


def _argument_classes(module: Module, engine: Engine) -> dict[str, ConfigClass]:
    names = ("EngineArgs", "AsyncEngineArgs", "BaseFrontendArgs", "FrontendArgs")
    found = (module.names.get(name) for name in names)
    return {one.name: config_class(one, module, engine) for one in found if isinstance(one, ast.ClassDef)}


def _frontend_flags(cli: Module, engine: Engine, configs: dict[str, ConfigClass]) -> Iterator[Flag]:
    """``FrontendArgs.add_cli_args`` loops over the fields; its ``_customize_cli_kwargs`` changes some."""
    changes = _frontend_changes(cli)
    for one in configs["FrontendArgs"].fields.values():
        spelling = f"--{one.name.replace('_', '-')}"
        settings = changes.get(one.name, {})
        form, nargs = _form(one.type, settings, from_class=True)
        yield Flag(
            name=one.name,
            spellings=(spelling,),
            negations=_negations((spelling,), form, engine),
            form=form,
            type=one.type,
            default=one.default,
            config="FrontendArgs",
            config_field=one.name,
            nargs=nargs,
            path=cli.path,
            line=one.line,
        )


def _frontend_changes(cli: Module) -> dict[str, dict[str, ast.expr | None]]:
    """Per field: the settings assigned to it; a deleted one is None."""
    changes: dict[str, dict[str, ast.expr | None]] = {}
    for name in ("BaseFrontendArgs", "FrontendArgs"):
        for statement in _in_order(_function(cli, name, "_customize_cli_kwargs").body):
            for target, value in _changed(statement):
                changes.setdefault(target[0], {})[target[1]] = value
    return changes


def _changed(statement: ast.stmt) -> Iterator[tuple[tuple[str, str], ast.expr | None]]:
    targets: list[ast.expr] = []
    value = None
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.Delete):
        targets = statement.targets
    for target in targets:
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Subscript):
            yield (str(_text(target.value.slice)), str(_text(target.slice))), value


def _form(kind: TypeJson, settings: dict[str, ast.expr | None], from_class: bool) -> tuple[str, str | int | None]:
    """How the flag is written, and its ``nargs``."""
    action = _text(settings.get("action"))
    if action in _SWITCHES or action == "append":
        return ("append" if action == "append" else "switch"), None
    if _is_boolean(settings):
        return "boolean", None
    form, nargs = _derived_form(kind) if from_class else ("value", None)
    if "nargs" in settings and settings["nargs"] is None and form == "list":
        return "json", None
    return form, nargs


def _is_boolean(settings: dict[str, Any]) -> bool:
    action = settings.get("action")
    return action is not None and last_name(action) == "BooleanOptionalAction"


def _derived_form(kind: TypeJson) -> tuple[str, str | int | None]:
    """The order of the tests is that of ``_compute_kwargs``; it decides for unions."""
    alternatives = [one for one in members_of(kind) if one != "null"]
    if has_kind(kind, "config"):
        return "json", None
    if sorted(map(str, alternatives)) == ["bool", "str"] and has_kind(kind, "null"):
        return "optional_value", "?"
    if has_kind(kind, "bool"):
        return "boolean", None
    if has_kind(kind, "literal"):
        return "value", None
    return _derived_container_form(kind, alternatives)


def _derived_container_form(kind: TypeJson, alternatives: list[TypeJson]) -> tuple[str, str | int | None]:
    if has_kind(kind, "list") or has_kind(kind, "set"):
        return "list", "+"
    if pair := next((one for one in alternatives if is_kind(one, "tuple")), None):
        return "list", len(pair["tuple"])  # type: ignore[index]
    is_number = has_kind(kind, "int") or has_kind(kind, "float")
    return ("value" if is_number or not has_kind(kind, "dict") else "json"), None


def _negations(spellings: tuple[str, ...], form: str, engine: Engine) -> tuple[str, ...]:
    """``--no-x`` for each ``--x``; a parser with ``EnableDisableAction`` pairs enable and disable as well."""
    if form != "boolean":
        return ()
    inverses = _INVERSES if "EnableDisableAction" in engine.module(_PARSER).names else {}
    long = [one for one in spellings if one.startswith("--")]
    paired = [
        inverse + one.removeprefix(prefix)
        for one in long
        for prefix, inverse in inverses.items()
        if one.startswith(prefix)
    ]
    return (*(f"--no-{one[2:]}" for one in long), *paired)


def _destination(spellings: tuple[str, ...], explicit: dict[str, ast.expr]) -> str:
    if "dest" in explicit:
        return str(_text(explicit["dest"]))
    long = next(one for one in spellings if one.startswith("--"))
    return long[2:].replace("-", "_")


def _with_deprecation(flag: Flag, module: Module, configs: dict[str, ConfigClass]) -> Flag:
    """Marked where a ``*_DEPRECATION_MESSAGE`` names the flag or the field's text opens with the word."""
    text = _deprecation_text(flag, module, configs)
    if text is None:
        return flag
    removal = re.search(r"removed (?:in|by) v?(\d+\.\d+(?:\.\d+)?)", text)
    return replace(flag, deprecated=removal.group(1) if removal else "")


def _deprecation_text(flag: Flag, module: Module, configs: dict[str, ConfigClass]) -> str | None:
    long = next(one for one in flag.spellings if one.startswith("--"))
    for text in _deprecation_messages(module):
        if re.search(rf"{re.escape(long)}\)? is deprecated", text):
            return text
    fields = configs[flag.config].fields if flag.config in configs else {}
    doc = fields[flag.config_field].doc if flag.config_field in fields else ""
    return doc if re.match(r"\W*(DEPRECATED|Deprecated)", doc) else None


def _deprecation_messages(module: Module) -> list[str]:
    messages = []
    for name, statement in module.names.items():
        if name.endswith("_DEPRECATION_MESSAGE") and isinstance(statement, ast.Assign):
            messages.append(str(ast.literal_eval(statement.value)))
    return messages


def _function(module: Module, class_name: str, name: str) -> ast.FunctionDef:
    owner = module.names[class_name] if class_name else module.tree
    assert isinstance(owner, ast.ClassDef | ast.Module)
    return next(one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == name)


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for inner in ("body", "orelse"):
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _in_order(getattr(statement, inner, []))


def _is_call_of(node: ast.expr | None, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and last_name(node.func) == name


def _text(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def frontend_class(engine: Engine) -> ConfigClass:
    """The class of the server's own flags."""
    cli = engine.module(_cli_args_path(engine))
    return _argument_classes(cli, engine)["FrontendArgs"]
