"""Which layers' outputs a drafter reads, from its config."""

from dataclasses import replace
from typing import Any

import pytest

from servespec.compiler.memory.auxiliary_states import aux_layers, aux_places
from servespec.compiler.resolve.resolution import Resolution
from tests.plans import compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

LAYERS = 32


def drafting(**config: Any) -> Resolution:
    """An EAGLE3 draft with more in its config."""
    speculative = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    resolution = compiled({**spec_of("llama-3.1-8b", "h200"), "speculative": speculative}).resolution
    draft = resolution.request.draft
    assert draft is not None
    changed = replace(draft, config={**draft.config, **config})
    return replace(resolution, request=replace(resolution.request, draft=changed))


@pytest.mark.parametrize(
    ("config", "places"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}, (1, 15, 28)),
        ({"dflash_config": {"target_layer_ids": [1, 15, 31]}}, (2, 16, 32)),
        ({"dspark_target_layer_ids": [29, 30, 31]}, (30, 31, 32)),
        ({"dspark_target_layer_ids": [29, 30, 31], "model_type": "deepseek_v41"}, (29, 30, 31)),
        ({"target_layer_ids": [0, 31]}, (1, 32)),
        ({"eagle_config": {"layer_ids": [3, 9]}}, (3, 9)),
        ({"dflash_config": {"layer_ids": [4, 8]}, "eagle_config": {"layer_ids": [3, 9, 20]}}, (4, 8)),
        ({}, (2, 16, 29)),
    ],
)
def test_places_are_those_that_the_drafter_lists(config: dict[str, Any], places: tuple[int, ...]) -> None:
    """The number of layers stands for what the last one leaves."""
    resolution = drafting(**config)

    assert aux_places(resolution, LAYERS) == places
    assert aux_layers(resolution) == len(places)


@pytest.mark.parametrize("ids", [[1, 15, 40], ["a", 2, 3], [-5, 2, 3]])
def test_places_that_the_target_does_not_have_are_as_many_others(ids: list[Any]) -> None:
    resolution = drafting(target_layer_ids=ids)

    assert aux_layers(resolution) == 3
    assert aux_places(resolution, LAYERS) == (2, 16, 29)


def test_a_draft_may_read_none() -> None:
    resolution = drafting(eagle_config={"use_aux_hidden_state": False}, target_layer_ids=[1, 2])

    assert aux_layers(resolution) == 0
    assert aux_places(resolution, LAYERS) == ()
