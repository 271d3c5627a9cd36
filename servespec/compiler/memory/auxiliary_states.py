"""Which hidden states of the target its drafter reads beside the last one."""

from collections.abc import Mapping
from typing import Any

from servespec.compiler.facts.graph_memory import AUX_LAYERS, AUX_METHODS, ENTRY_STATE_MODELS
from servespec.compiler.memory.config_sizes import merged_config
from servespec.compiler.resolve.resolution import Resolution


def aux_layers(resolution: Resolution) -> int:
    """How many hidden states the target hands its drafter beside the last one."""
    draft, method = _draft_config(resolution), resolution.drafting.method.value
    if method not in AUX_METHODS.value:
        return 0
    if method == "eagle3" and _section(draft, "eagle_config").get("use_aux_hidden_state") is False:
        return 0
    return len(_listed(draft)) or AUX_LAYERS.value


def aux_places(resolution: Resolution, layers: int) -> tuple[int, ...]:
    """Layers whose input is handed on; the number of layers stands for what the last one leaves.

    Where the drafter's config lists none that the model has, they are spread over it.  A model whose layers are not
    known hands on as many.
    """
    count = aux_layers(resolution)
    listed = _listed(_draft_config(resolution))[:count]
    if listed and all(isinstance(place, int) and 0 <= place <= layers for place in listed):
        return tuple(sorted(set(listed)))
    spread = (2, layers // 2, max(layers - 3, 0), *range(3, 3 + count))
    return tuple(min(place, layers) for place in tuple(dict.fromkeys(spread))[:count])


def _listed(draft: Mapping[str, Any]) -> tuple[Any, ...]:
    """Some drafters list the layers themselves, which are one before those that read what they leave.

    Source: vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py: get_eagle3_aux_layers_from_config.
    """
    reads_entries = draft.get("model_type") in ENTRY_STATE_MODELS.value
    listed = (
        (draft.get("eagle_aux_hidden_state_layer_ids"), 0),
        (_section(draft, "dflash_config").get("target_layer_ids"), 1),
        (draft.get("dspark_target_layer_ids"), 0 if reads_entries else 1),
        (draft.get("target_layer_ids"), 1),
        (_section(draft, "dflash_config").get("layer_ids"), 0),
        (_section(draft, "eagle_config").get("layer_ids"), 0),
    )
    for ids, step in listed:
        if isinstance(ids, list | tuple) and ids:
            return tuple(place + step if isinstance(place, int) else place for place in ids)
    return ()


def _section(draft: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = draft.get(name)
    return section if isinstance(section, Mapping) else {}


def _draft_config(resolution: Resolution) -> Mapping[str, Any]:
    return merged_config(resolution.request.draft or resolution.request.target)
