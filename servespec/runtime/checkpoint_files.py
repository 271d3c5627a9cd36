"""Reads which tensors a model's safetensors files hold, and how many bytes each takes; no tensor is read."""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from servespec.compiler.checkpoint import Checkpoint, checkpoint_of
from servespec.units import Bytes

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
_LENGTH_BYTES = 8
# chosen: the format's own bound on a header
_MOST_HEADER_BYTES = 100 * 1000 * 1000
_METADATA = "__metadata__"


class CheckpointError(Exception):
    """A file that is there and is not what its name says; ``file`` is its name and ``why`` what is wrong."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"`{file}` {why}")


def read_checkpoint(folder: Path, layers: int | None) -> Checkpoint | None:
    """The checkpoint of a model folder, None where it has no safetensors.

    The headers of all files tell most; with an index and without the files, its total is taken.  Raises
    CheckpointError.
    """
    index = folder / INDEX_FILE
    if index.is_file():
        return _from_index(index, layers)
    single = folder / SINGLE_FILE
    return checkpoint_of(SINGLE_FILE, dict(_tensors(single)), layers) if single.is_file() else None


def _from_index(index: Path, layers: int | None) -> Checkpoint:
    document = _mapping(index.name, index.read_bytes())
    names = document.get("weight_map")
    if not isinstance(names, Mapping):
        raise CheckpointError(index.name, "has no `weight_map`")
    files = [index.parent / str(name) for name in sorted(set(map(str, names.values())))]
    if all(file.is_file() for file in files):
        tensors = {name: size for file in files for name, size in _tensors(file)}
        return checkpoint_of(index.name, tensors, layers)
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if not isinstance(total, int) or isinstance(total, bool) or total < 1:
        raise CheckpointError(index.name, "names files that are not there, and no `metadata.total_size`")
    return Checkpoint(file=index.name, size=Bytes(total), drafter=None)


def _tensors(file: Path) -> Iterator[tuple[str, int]]:
    """Names and bytes, from the header alone."""
    with file.open("rb") as opened:
        prefix = opened.read(_LENGTH_BYTES)
        if len(prefix) < _LENGTH_BYTES:
            raise CheckpointError(file.name, "is too short for safetensors")
        (length,) = struct.unpack("<Q", prefix)
        if length > _MOST_HEADER_BYTES:
            raise CheckpointError(file.name, "has no header of safetensors")
        header = _mapping(file.name, opened.read(length))
    for name, entry in header.items():
        if name != _METADATA:
            yield name, _size(file.name, name, entry)


def _size(file: str, name: str, entry: object) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, Mapping) else None
    if isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(one, int) for one in offsets):
        first, last = offsets
        if 0 <= first <= last:
            return int(last - first)
    raise CheckpointError(file, f"has no place for its tensor `{name}`")


def _mapping(file: str, raw: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise CheckpointError(file, "is not JSON where it should be") from None
    if not isinstance(found, dict):
        raise CheckpointError(file, "is not a JSON mapping where it should be")
    return found
