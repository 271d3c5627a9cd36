"""What the extension's launch line carries beside the graphs."""

import json
from typing import Any

import pytest

from servespec.compiler.graphs.hand_off import HAND_OFF_KEY
from servespec.diagnostics import SpecError
from tests.plans import compiled, spec_of

FLAG = "--additional-config"


def argv_of(lowering: str, **args: Any) -> tuple[str, ...]:
    engine = {"version": "0.33.0", "lowering": lowering, "args": args}
    return compiled(spec_of("qwen3-8b", "h200", engine=engine)).lowered.argv


@pytest.mark.parametrize("key", ["additional-config", "additional_config"])
def test_the_hand_off_goes_with_what_the_spec_gives(key: str) -> None:
    argv = argv_of("extension", **{key: {"mine": [1]}})
    given = json.loads(argv[argv.index(FLAG) + 1])

    assert argv.count(FLAG) == 1
    assert set(given) == {"mine", HAND_OFF_KEY}
    assert given["mine"] == [1]


def test_another_lowering_passes_it_on_as_it_is() -> None:
    argv = argv_of("legacy", **{"additional-config": {"mine": [1]}})

    assert json.loads(argv[argv.index(FLAG) + 1]) == {"mine": [1]}


def test_the_key_of_the_hand_off_is_refused() -> None:
    with pytest.raises(SpecError) as refused:
        argv_of("extension", **{"additional-config": {HAND_OFF_KEY: {}}})

    assert [finding.code for finding in refused.value.diagnostics] == ["R116"]
