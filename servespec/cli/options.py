"""Options and arguments that several commands take."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from servespec.runtime.gather import Options


class PlanFormat(StrEnum):
    text = "text"
    json = "json"


def complete_spec(incomplete: str) -> list[str]:
    from servespec.runtime.completion import spec_words

    return list(spec_words(incomplete))


Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC", help="A spec file, preset:NAME, or - for standard input.", autocompletion=complete_spec
    ),
]


Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Lay a value over the spec; repeatable.")
]


AllowCode = Annotated[bool, typer.Option("--allow-code", help="Let the spec make the engine run code from elsewhere.")]


AllowEngine = Annotated[
    bool, typer.Option("--allow-unverified-engine", help="Plan an unknown version with the nearest facts.")
]


ConfigFile = Annotated[Path | None, typer.Option(metavar="FILE", help="The model's config.json, or its folder.")]


DraftFile = Annotated[Path | None, typer.Option(metavar="FILE", help="The draft model's config.json, or its folder.")]


Measured = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="What an earlier run measured: a record of `serve`, step times; repeatable."),
]


Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")]


RecordFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the log and the results.")]


Concurrency = Annotated[str, typer.Option(metavar="N,...", help="Requests at a time, in requests.")]
InputTokens = Annotated[int, typer.Option(help="Prompt of one request, in tokens.")]
OutputTokens = Annotated[int, typer.Option(help="Answer of one request, in tokens.")]
Prompts = Annotated[int, typer.Option(help="Prompts for each request at a time.")]


def options_of(
    settings: list[str] | None,
    allow_code: bool,
    allow_unverified_engine: bool,
    model_config: Path | None,
    draft_config: Path | None,
) -> "Options":
    from servespec.runtime.gather import Options

    return Options(
        settings=tuple(settings or ()),
        allow_code=allow_code,
        allow_unverified_engine=allow_unverified_engine,
        model_config=model_config,
        draft_config=draft_config,
    )
