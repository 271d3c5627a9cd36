"""What a model's files hold, by the names of their tensors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from servespec.units import Bytes

_LAYER = re.compile(r"(?:(?:model|language_model|text_model|thinker)\.)*layers\.(\d+)\.")
"""A layer of the language part; encoders count their layers for themselves."""
_MTP = re.compile(r"(?:^|\.)mtp\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Bytes of the tensors in a model's files. ``file`` is the one that lists them.

    ``drafter`` are those of layers past the model's own, which it is not served with; None where the files give a total
    alone.
    """

    file: str
    size: Bytes
    drafter: Bytes | None

    @property
    def own(self) -> Bytes:
        """What the model itself loads, as far as that is told."""
        return Bytes(self.size - (self.drafter or 0))


def checkpoint_of(file: str, tensors: Mapping[str, int], layers: int | None) -> Checkpoint:
    """The checkpoint of tensors by name, in bytes, for a model of so many layers."""
    past = sum(size for name, size in tensors.items() if _is_past(name, layers))
    return Checkpoint(file=file, size=Bytes(sum(tensors.values())), drafter=Bytes(past))


def _is_past(name: str, layers: int | None) -> bool:
    """MTP layers are named for what they are, or counted on from the model's own.

    Source: vllm/model_executor/models/utils.py: get_spec_layer_idx_from_weight_name.
    """
    if _MTP.search(name):
        return True
    found = _LAYER.match(name)
    return layers is not None and found is not None and int(found[1]) >= layers
