"""Finding a model's ``config.json``: a file that is named, a folder, the model cache, shipped facts, or the hub.

Nothing of the model is imported or run; the file is JSON and is read as data.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servespec.diagnostics import Diagnostic, Place, Position, Range, Related, SpecError
from servespec.presets.catalog import ModelFacts, model_facts
from servespec.runtime.config_rules import R001, R002
from servespec.runtime.json_mapping import JsonFault, json_fault, json_mapping

_CONFIG_NAME = "config.json"
_MOST_BYTES = 4 * 1024 * 1024
_HUB_TIMEOUT_SECONDS = 8
_DEFAULT_HUB = "https://huggingface.co"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model's config with where it came from.

    ``commit`` is None for a folder or a named file, ``folder`` where the config alone is at hand.  ``facts`` are the
    shipped facts of the model, and ``is_shipped`` says that ``data`` is those.
    """

    id: str
    found_in: str
    commit: str | None
    sha256: str
    data: Mapping[str, Any]
    folder: Path | None = None
    facts: ModelFacts | None = None
    is_shipped: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which model, as the spec names it, and the place of that name.

    ``base`` is the spec's own folder; ``named_file`` a config given on the command line; ``option`` the name of the
    option that gives one.
    """

    id: str
    revision: str | None
    place: Place
    base: Path
    named_file: Path | None
    option: str


def load_model_config(wanted: Wanted) -> ModelConfig:
    """The config of the model; SpecError where none can be found or read."""
    if wanted.named_file is not None:
        named = wanted.named_file
        file = named / _CONFIG_NAME if named.is_dir() else named
        return _from_file(wanted, file, "a file named on the command line", commit=None)
    folder = (wanted.base / wanted.id).expanduser()
    if folder.is_dir():
        found = _from_file(wanted, folder / _CONFIG_NAME, "the model folder", commit=None)
        return replace(found, folder=folder)
    if _is_path(wanted.id):
        raise SpecError([_not_found(wanted, f"there is no folder `{wanted.id}`")])
    # A revision is another model until it is looked at.
    facts = model_facts(wanted.id) if wanted.revision is None else None
    cached = _in_cache(wanted)
    if cached is not None:
        found = _from_file(wanted, cached, "the model cache", commit=cached.parent.name)
        return replace(found, folder=cached.parent, facts=facts)
    if facts is not None:
        shipped = _model_config(wanted, facts.raw, "the facts that come with servespec", commit=None)
        return replace(shipped, facts=facts, is_shipped=True)
    return _from_hub(wanted)


def names_folder(model_id: str, base: Path) -> bool:
    """Whether a model's name is that of a folder, here or, by its form, elsewhere."""
    return (base / model_id).expanduser().is_dir() or _is_path(model_id)


def _is_path(model_id: str) -> bool:
    return model_id.startswith((".", "/", "~")) or model_id.count("/") > 1


def _not_found(wanted: Wanted, why: str) -> Any:
    help_text = (
        f"name a folder that holds the model's `config.json`, or pass `{wanted.option} FILE`; a model that was "
        "downloaded once is found in the model cache"
    )
    return R001.at(wanted.place, f"no config of model `{wanted.id}`: {why}", help_text)


def _from_file(wanted: Wanted, path: Path, found_in: str, commit: str | None) -> ModelConfig:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError([_not_found(wanted, f"`{path}`: {error.strerror}")]) from None
    return _model_config(wanted, raw, found_in, commit, path)


def _model_config(
    wanted: Wanted, raw: bytes, found_in: str, commit: str | None, path: Path | None = None
) -> ModelConfig:
    data = None if len(raw) > _MOST_BYTES else json_mapping(raw)
    if data is None:
        raise SpecError([_unreadable(wanted, raw, found_in, path)])
    digest = hashlib.sha256(raw).hexdigest()
    return ModelConfig(id=wanted.id, found_in=found_in, commit=commit, sha256=digest, data=data)


def _unreadable(wanted: Wanted, raw: bytes, found_in: str, path: Path | None) -> Diagnostic:
    """With the place in the file where there is one."""
    is_large = len(raw) > _MOST_BYTES
    fault = JsonFault(f"it is larger than {_MOST_BYTES >> 20} MiB") if is_large else json_fault(raw)
    related = []
    if path is not None:
        span = None if fault.at is None else Range(fault.at, Position(fault.at.line, fault.at.column + 1))
        related.append(Related("the config", Place(str(path), span)))
    message = f"the config of model `{wanted.id}` in {found_in} is not a JSON mapping: {fault.because}"
    return R002.at(wanted.place, message, "download the model again, or name its `config.json`", related)


def _in_cache(wanted: Wanted) -> Path | None:
    """The newest snapshot that the revision names, in the hub library's own layout."""
    folder = _cache_folder() / f"models--{wanted.id.replace('/', '--')}"
    for commit in _commits(folder, wanted.revision):
        config = folder / "snapshots" / commit / _CONFIG_NAME
        if config.is_file():
            return config
    return None


def _commits(folder: Path, revision: str | None) -> Iterator[str]:
    name = revision or "main"
    reference = folder / "refs" / name
    if reference.is_file():
        yield reference.read_text(encoding="utf-8").strip()
    yield name


def _cache_folder() -> Path:
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(home).expanduser() / "hub"


def _from_hub(wanted: Wanted) -> ModelConfig:
    import http.client
    import urllib.error
    import urllib.request

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise SpecError([_not_found(wanted, "it is not in the model cache, and HF_HUB_OFFLINE is set")])
    endpoint = os.environ.get("HF_ENDPOINT", _DEFAULT_HUB).rstrip("/")
    url = f"{endpoint}/{wanted.id}/resolve/{wanted.revision or 'main'}/config.json"
    if not url.startswith(("https://", "http://")):
        raise SpecError([_not_found(wanted, "HF_ENDPOINT is not an address")])
    request = urllib.request.Request(url, headers=_authorization())  # noqa: S310 - the scheme is checked above
    try:
        with urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_SECONDS) as answer:  # noqa: S310
            raw = answer.read(_MOST_BYTES + 1)
            commit = answer.headers.get("X-Repo-Commit")
    except urllib.error.HTTPError as error:
        why = "the hub asks for permission" if error.code in (401, 403) else f"the hub answered {error.code}"
        raise SpecError([_not_found(wanted, why)]) from None
    except (OSError, http.client.HTTPException):
        raise SpecError([_not_found(wanted, "it is not in the model cache, and the hub cannot be reached")]) from None
    return _model_config(wanted, raw, "the hub", commit)


def _authorization() -> dict[str, str]:
    token = os.environ.get("HF_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}
