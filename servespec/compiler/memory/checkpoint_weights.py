"""Weights as the model's files hold them, beside the formula that says how ranks share them."""

from dataclasses import replace

from servespec.compiler.checkpoint import Checkpoint
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line
from servespec.compiler.memory.matrices import rotary_table, unpacked_latent, vocabulary
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.weights import Decoder, stage_lines
from servespec.compiler.model import Model
from servespec.provenance import Basis
from servespec.schema.spec import ServingSpec
from servespec.units import Bytes

_HALVES = (None, "auto", "bfloat16", "float16", "half")
# chosen: a rank may hold more than its share of what ranks copy, and kernels pad
_COPIED_SHARE = 0.15

Stages = tuple[tuple[MemoryLine, ...], ...]


def usable_checkpoint(model: Model, spec: ServingSpec) -> Checkpoint | None:
    """The files, where the engine stores what they hold: no other type, quantization or layers are asked for."""
    found = model.checkpoint
    is_as_stored = spec.model.dtype in _HALVES and model.traits.dtype in _HALVES and spec.model.quantization is None
    if found is None or not is_as_stored or spec.model.hf_overrides or spec.model.load_format == "dummy":
        return None
    return found


def with_checkpoint(decoder: Decoder, split: Split, checkpoint: Checkpoint) -> Stages:
    """The formula's lines of each stage, and a line of what the files hold beside or do not hold.

    On one rank all lines together are what the files say, so that a guess of the layers has no bar any more.
    """
    whole = sum(line.size for line in stage_lines(decoder, Split(), Holder.TARGET)[0])
    rest = checkpoint.own - (whole - _not_stored(decoder))
    is_whole = _is_whole(split)
    stages = stage_lines(replace(decoder, share=0.0) if is_whole else decoder, split, Holder.TARGET)
    return tuple(
        (
            *(replace(line, low=line.size) if is_whole else line for line in lines),
            _rest_line(lines, rest, whole, split, checkpoint),
        )
        for lines in stages
    )


def _is_whole(split: Split) -> bool:
    return split.tensor == split.pipeline == split.experts == split.expert_width == 1


def _not_stored(decoder: Decoder) -> int:
    """Made when the engine starts: tables, copies that are unpacked, and rows that pad the vocabulary."""
    dimensions, split = decoder.dimensions, Split()
    tables = rotary_table(dimensions).size_bytes(decoder.storage)
    padded = vocabulary(dimensions, split)
    rows = padded.rows - dimensions.vocabulary
    padding = (1 if dimensions.is_tied else 2) * replace(padded, rows=rows).size_bytes(decoder.storage)
    copy = unpacked_latent(dimensions, split)
    if copy is None or decoder.storage.linear == decoder.storage.plain:
        return tables + padding
    recurrent = dimensions.recurrent
    attends = dimensions.layers - (sum(recurrent.recurs) if recurrent else 0)
    return tables + padding + attends * copy.size_bytes(decoder.storage)


def _rest_line(
    lines: tuple[MemoryLine, ...], rest: int, whole: int, split: Split, checkpoint: Checkpoint
) -> MemoryLine:
    owner = "in the files and in no formula" if rest >= 0 else "in the formula and not in the files"
    because = f"`{checkpoint.file}` holds {checkpoint.own} bytes of this model"
    if _is_whole(split) and checkpoint.drafter is not None:
        return exact_line(owner, Holder.TARGET, Part.WEIGHTS, Bytes(rest), because)
    share = Bytes(round(rest * sum(line.size for line in lines) / whole))
    return MemoryLine(
        owner=owner,
        holder=Holder.TARGET,
        part=Part.WEIGHTS,
        size=share,
        low=min(share, Bytes(rest)),
        high=max(share, Bytes(rest)),
        basis=Basis.ESTIMATE,
        because=because,
    )


def files_line(checkpoint: Checkpoint, split: Split) -> MemoryLine:
    """The files of a model whose layers no formula knows, on the rank that holds most."""
    ranks = split.tensor * split.pipeline
    because = f"`{checkpoint.file}` holds {checkpoint.own} bytes; no formula says how ranks share them"
    owner = "weights in the files"
    if _is_whole(split) and checkpoint.drafter is not None:
        return exact_line(owner, Holder.TARGET, Part.WEIGHTS, checkpoint.own, because)
    size = Bytes(-(-checkpoint.own // ranks))
    return MemoryLine(
        owner=owner,
        holder=Holder.TARGET,
        part=Part.WEIGHTS,
        size=size,
        low=Bytes(size - (checkpoint.own if checkpoint.drafter is None else 0) // (4 * ranks)),
        high=min(checkpoint.own, Bytes(int(size * (1 + _COPIED_SHARE)))),
        basis=Basis.ESTIMATE,
        because=because,
    )
