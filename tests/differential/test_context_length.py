"""The longest context that may be asked for, against the engine's own function and its reading of a config.

Left: ``longest_askable_len``. Right: ``_get_and_verify_max_len``, lifted, with the convertor's names of lengths.
"""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servespec.compiler.facts.model_traits import longest_askable_len
from tests.differential import engine_oracle as oracle
from tests.differential.lifting import EngineText

pytestmark = pytest.mark.engine

every_root = pytest.mark.parametrize(
    "root",
    oracle.available_roots() or [pytest.param(None, marks=pytest.mark.skip(reason="no engine under .engines"))],
    ids=lambda root: root.name if root else "none",
)

LENGTHS = st.sampled_from([1024, 4096, 8192, 40960, 131072])
ROPES = st.sampled_from(["default", "linear", "dynamic", "yarn", "llama3", "longrope", "su", "mrope"]).flatmap(
    lambda kind: st.fixed_dictionaries({"rope_type": st.just(kind)}, optional={"factor": st.sampled_from([2.0, 4.0])})
)
KINDS = st.fixed_dictionaries({"model_type": st.just("gemma3_text")}) | st.fixed_dictionaries(
    {"model_type": st.just("qwen3")}, optional={"use_sliding_window": st.booleans()}
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_position_embeddings": LENGTHS,
        "seq_length": LENGTHS,
        "model_max_length": LENGTHS,
        "sliding_window": st.sampled_from([512, 4096]),
        "rope_parameters": ROPES,
        "original_max_position_embeddings": LENGTHS,
    },
)
CONFIGS = st.builds(lambda kind, limits: kind | limits, KINDS, LIMITS)


@cache
def lifted(root: Path) -> EngineText:
    """The engine's text with the parts of transformers that the function asks for."""
    return EngineText(
        root,
        {
            "vllm.config.model:logger": SimpleNamespace(warning=_silent, warning_once=_silent),
            "vllm.config.model:iter_rope_parameters": lambda config: filter(None, [config.rope_parameters]),
            "vllm.config.model:envs": SimpleNamespace(VLLM_ALLOW_LONG_MAX_MODEL_LEN=False),
        },
    )


def _silent(*_words: object) -> None:
    """What the engine says is not compared."""


def _window_of_class(config: dict[str, Any]) -> int | None:
    """As the config class has it, which is what the engine reads; ``test_config_classes`` asks the classes themselves.

    Source: transformers: Qwen3Config.__post_init__, Gemma3TextConfig.
    """
    is_read = config["model_type"] != "qwen3" or config.get("use_sliding_window", False)
    return config.get("sliding_window", 4096) if is_read else None


def engine_takes(root: Path, config: dict[str, Any], asked: int, *, without_window: bool) -> bool:
    """Whether the engine starts with that length."""
    text = lifted(root)
    held = SimpleNamespace(**{"rope_parameters": None, **config, "sliding_window": _window_of_class(config)})
    convertor = text.part_of_class(
        "vllm.transformers_utils.model_arch_config_convertor:ModelArchConfigConvertorBase",
        ["derive_max_model_len_and_key"],
    )
    reader = convertor.__new__(convertor)
    reader.hf_text_config = held
    verified = text.get("vllm.config.model:_get_and_verify_max_len")
    try:
        verified(
            hf_config=held,
            model_arch_config=SimpleNamespace(derived_max_model_len_and_key=reader.derive_max_model_len_and_key()),
            tokenizer_config=None,
            max_model_len=asked,
            disable_sliding_window=without_window,
            sliding_window=held.sliding_window,
        )
    except ValueError:
        return False
    return True


@every_root
@settings(max_examples=300)
@given(config=CONFIGS, without_window=st.booleans(), data=st.data())
def test_the_engine_takes_the_longest_and_no_more(
    root: Path, config: dict[str, Any], without_window: bool, data: st.DataObject
) -> None:
    longest = longest_askable_len(config, without_window=without_window)
    asked = data.draw(st.integers(1, 1 << 20) if longest is None else st.sampled_from([longest, longest + 1, 1]))

    assert engine_takes(root, config, asked, without_window=without_window) is (longest is None or asked <= longest)
