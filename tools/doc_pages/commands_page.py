"""docs/reference/commands.md: every command with its arguments and options, and the exit codes.

Read from the functions that typer is given, so that the page does not depend on how a version of typer prints help.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from doc_pages.markdown import code, page, sentences, table
from servespec.cli import app

EXIT_CODES: Mapping[int, tuple[str, str]] = {
    0: ("done", "The command did what it was asked; for `serve`, the server was stopped as asked."),
    1: (
        "refused",
        "The spec has errors; with `validate --strict`, warnings count. Or a full disk did not take the output.",
    ),
    2: ("usage", "The command line itself is wrong, or `explain` knows no such name."),
    3: (
        "does not fit",
        "The plan does not fit the device's memory, even at the low ends of its error bars.",
    ),
    4: ("unsupported", "Engine, version, hardware or lowering is absent or not supported."),
    5: ("launch failed", "The engine did not start, or not in time."),
    6: (
        "differs",
        (
            "What was captured differs from the plan (L016), graphs from eager (L023, L025), a plan from the one that "
            "`--against` names, or steps failed (L034)."
        ),
    ),
    7: ("died", "The server died after it was ready, or did not answer."),
    70: ("our fault", "A fault of servespec itself; report it, with the file that it names."),
    130: ("interrupted", "Ended by Ctrl-C."),
    143: ("terminated", "Ended by SIGTERM."),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument or option, as a person types it; ``takes`` is '' for a switch."""

    names: tuple[str, ...]
    takes: str
    default: str
    help: str
    is_argument: bool


def commands_page() -> str:
    return page(
        "Commands",
        sentences(
            "Data goes to standard output, everything else to standard error. "
            "Colour is used on a terminal only, and never where `NO_COLOR` is set. "
            "`SPEC` is a file, `preset:NAME`, or `-` for standard input. "
            "`servespec --install-completion` lets bash, zsh and fish complete presets and spec files."
        ),
        *(_command(name, function) for name, function in commands()),
        _exit_codes(),
    )


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """(words, function) of every command, groups last, in the order of the help."""
    yield from _commands_of(app)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for name, function in _commands_of(group.typer_instance):
            yield f"{group.typer_instance.info.name} {name}", function


def _commands_of(group: typer.Typer) -> Iterator[tuple[str, Callable[..., Any]]]:
    for info in group.registered_commands:
        assert info.callback is not None
        yield info.name or info.callback.__name__, info.callback


def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    hints = get_type_hints(function, include_extras=True)
    return tuple(_parameter(one, hints[one.name]) for one in inspect.signature(function).parameters.values())


def _parameter(one: inspect.Parameter, hint: Any) -> Parameter:
    kind, *extras = get_args(hint)
    info = next(extra for extra in extras if isinstance(extra, OptionInfo | ArgumentInfo))
    is_argument = isinstance(info, ArgumentInfo)
    return Parameter(
        names=(info.metavar or one.name.upper(),) if is_argument else _option_names(one.name, kind, info),
        takes="" if kind is bool or (is_argument and not _is_choice(kind)) else _takes(kind, info),
        default=_default(one),
        help=info.help or "",
        is_argument=is_argument,
    )


def _option_names(name: str, kind: Any, info: Any) -> tuple[str, ...]:
    """As declared; typer keeps the first declared name of an annotation where a default would stand."""
    declared = tuple(one for one in (info.default, *(info.param_decls or ())) if str(one).startswith("-"))
    if declared:
        return declared
    flag = "--" + name.replace("_", "-")
    return (flag, "--no-" + flag[2:]) if kind is bool else (flag,)


def _takes(kind: Any, info: Any) -> str:
    plain = _without_none(kind)
    if _is_choice(plain):
        return "|".join(str(member.value) for member in plain)
    return str(info.metavar) if info.metavar else plain.__name__.upper()


def _is_choice(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return next(member for member in get_args(kind) if member is not type(None))
    return kind


def _default(one: inspect.Parameter) -> str:
    if one.default in (inspect.Parameter.empty, None, False):
        return ""
    return code(one.default.value if isinstance(one.default, Enum) else one.default)


def _command(name: str, function: Callable[..., Any]) -> str:
    found = parameters(function)
    usage = " ".join(["servespec", name, "[OPTIONS]", *(p.names[0] for p in found if p.is_argument)])
    rows = [(_shown(p), p.default, p.help) for p in found]
    return "\n\n".join(
        [
            f"## {name}",
            sentences(function.__doc__ or ""),
            f"```text\n{usage}\n```",
            table(("argument or option", "default", "meaning"), rows),
        ]
    )


def _shown(parameter: Parameter) -> str:
    names = ", ".join(code(name) for name in parameter.names)
    return f"{names} {parameter.takes}".strip()


def _exit_codes() -> str:
    rows = [(str(number), name, meaning) for number, (name, meaning) in EXIT_CODES.items()]
    return "## Exit codes\n\n" + table(("code", "name", "meaning"), rows)
