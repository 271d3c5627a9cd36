"""`presets` and `init`: specs to begin with."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from servespec.cli.application import app
from servespec.cli.machines import complete_gpu, machine
from servespec.cli.reporting import reporting, write_text, writing
from servespec.provenance import PRESET_PREFIX

if TYPE_CHECKING:
    from servespec.presets.catalog import PresetGoal
    from servespec.presets.starting import StartingSpec

_Read = TypeVar("_Read")
_GPU_QUESTION: Final = "GPUs, such as h200 or gb200x4"

presets_app = typer.Typer(
    name="presets", help="Specs that come with servespec: find one, and read it.", no_args_is_help=True
)


app.add_typer(presets_app)


class ListFormat(StrEnum):
    text = "text"
    json = "json"


def _complete_preset(incomplete: str) -> list[str]:
    from servespec.presets.catalog import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def _complete_goal(incomplete: str) -> list[str]:
    from servespec.presets.catalog import PresetGoal

    return [goal.value for goal in PresetGoal if goal.value.startswith(incomplete)]


@presets_app.command("list")
def list_presets(
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME[xCOUNT]", help="Of this GPU, such as h200 or gb200x4.", autocompletion=complete_gpu),
    ] = None,
    goal: Annotated[
        str | None, typer.Option(metavar="GOAL", help="For this goal, such as latency.", autocompletion=_complete_goal)
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="How the list is printed.")] = ListFormat.text,  # noqa: A002
) -> None:
    """Name the presets, with what each is for and whether it was measured."""
    from servespec.presets.catalog import presets
    from servespec.render.preset_text import preset_list

    device, count = (None, None) if gpu is None else machine(gpu)
    wanted = None if goal is None else _goal(goal)
    found = [
        preset.to_json()
        for preset in presets()
        if device in (None, preset.gpu) and count in (None, preset.count) and (wanted is None or preset.goal is wanted)
    ]
    write_text(preset_list(found) if format is ListFormat.text else json.dumps(found, indent=1) + "\n", None)
    if not found:
        typer.echo("no preset is for that; `servespec init` writes a spec of your own", err=True)


@presets_app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A preset's name.", autocompletion=_complete_preset)],
) -> None:
    """Print a preset: a spec to read, or to write to a file and change."""
    from servespec.runtime.spec_file import spec_bytes

    argument = f"{PRESET_PREFIX}{name.removeprefix(PRESET_PREFIX)}"
    with reporting(argument):
        text = spec_bytes(argument).decode("utf-8")
    typer.echo(text, nl=False)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The spec to write.")] = Path("spec.yaml"),
    model: Annotated[
        str | None, typer.Option(metavar="ID", help="The model: its name on the hub, or a folder.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME[xCOUNT]", help="The GPUs, such as h200 or gb200x4.", autocompletion=complete_gpu),
    ] = None,
    goal: Annotated[
        str | None, typer.Option(metavar="GOAL", help="What it is for, such as latency.", autocompletion=_complete_goal)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Write a commented spec; asks on a terminal for what the options do not say."""
    from servespec.presets.starting import GOAL_VALUES, starting_spec
    from servespec.runtime.probe import this_machine
    from servespec.schema.modeline import SCHEMA_FILE

    if file.exists() and not force:
        raise typer.BadParameter(f"`{file}` exists; name another, or pass `--force`", param_hint="FILE")

    def spec_for(text: str) -> "StartingSpec":
        wanted = _goal(text)
        made = starting_spec(_from_spec(named, file), name, count or 1, wanted)
        if made is None:
            message = f"only presets are for `{wanted}`; without one it takes {', '.join(GOAL_VALUES)}"
            raise typer.BadParameter(message, param_hint="--goal")
        return made

    named = model or _asked("--model", "model (its name on the hub, or a folder)", None, str)
    name, count = machine(gpu) if gpu else _asked("--gpu", _GPU_QUESTION, this_machine() or None, machine)
    goals = f"goal ({', '.join(GOAL_VALUES)})"
    made = spec_for(goal) if goal else _asked("--goal", goals, "balanced", spec_for)
    _write_new(file, made.text, force)
    origin = f"{PRESET_PREFIX}{made.preset}" if made.preset else "the values of the goal"
    typer.echo(f"wrote {file}, from {origin}", err=True)
    typer.echo(f"next: servespec plan {shlex.quote(str(file))}", err=True)
    schema = file.parent / SCHEMA_FILE
    if not schema.exists():
        typer.echo(f"for your editor: servespec schema spec > {shlex.quote(str(schema))}", err=True)


def _from_spec(model: str, file: Path) -> str:
    """A folder as the spec names it, from the spec's own folder; any other name as it is."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    return os.path.join(os.curdir, os.path.relpath(folder, file.parent))  # noqa: PTH118 - a Path drops the dot


def _write_new(file: Path, text: str, force: bool) -> None:
    with writing(file, "FILE"), file.open("w" if force else "x", encoding="utf-8") as opened:
        opened.write(text)


def _asked(option: str, question: str, default: str | None, read: Callable[[str], _Read]) -> _Read:
    """What ``read`` makes of a person's answer, asked again where it refuses; without a terminal nobody answers."""
    if not _is_terminal():
        raise typer.BadParameter("it is needed where there is no terminal to ask on", param_hint=option)

    def taken(answer: str) -> _Read:
        if not answer.strip():
            raise typer.BadParameter("the answer is empty", param_hint=option)
        return read(answer.strip())

    answered: _Read = typer.prompt(question, default=default, err=True, value_proc=taken)
    return answered


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _goal(text: str) -> "PresetGoal":
    from servespec.presets.catalog import PresetGoal

    try:
        return PresetGoal(text)
    except ValueError:
        raise typer.BadParameter(f"it takes {', '.join(PresetGoal)}", param_hint="--goal") from None
