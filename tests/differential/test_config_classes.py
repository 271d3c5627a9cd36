"""Windows and widths of heads that a config.json leaves to the class of its config, against those classes."""

import json
import subprocess
from typing import Any

import pytest

from servespec.compiler.facts.model_traits import (
    DEFAULT_HEAD_WIDTHS,
    DEFAULT_KV_HEADS,
    ONE_KV_HEAD_CONFIG_CLASSES,
    num_kv_heads,
)
from servespec.compiler.facts.mtp_layers import mtp_layers
from servespec.compiler.facts.windows import (
    ASKED_FOR_WINDOWS,
    DEFAULT_WINDOWS,
    LAYERS_BEFORE_WINDOWS,
    WINDOW_PATTERNS,
)
from servespec.compiler.memory.windows import windows_of
from servespec.compiler.model import model_of
from tests.differential.engine_process import PYTHON

Json = dict[str, Any]

pytestmark = [pytest.mark.engine, pytest.mark.skipif(PYTHON is None, reason="no interpreter with an engine")]

_LAYERS = 13
_ASK = """
import json, sys
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING
def windows(written):
    try:
        config = CONFIG_MAPPING[written["model_type"]](**written)
    except (StrictDataclassError, ZeroDivisionError):
        return "refused"
    config.allow_global_per_layer_attribute_access = True
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or None
    return [window if kind == "sliding_attention" else None for kind in kinds]
print(json.dumps([windows(one) for one in json.loads(sys.stdin.read())]))
"""


def written_ways(model_type: str) -> list[Json]:
    """What config.json may hold of windows, none of it layer types."""
    base: Json = {"model_type": model_type, "num_hidden_layers": _LAYERS}
    ways = [base, base | {"sliding_window": 64}, base | {"sliding_window": None}]
    if model_type in ASKED_FOR_WINDOWS.value:
        ways += [base | {"sliding_window": 64, "use_sliding_window": asked} for asked in (True, False)]
    if model_type in LAYERS_BEFORE_WINDOWS.value:
        ways += [
            base | {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": n} for n in (0, 5, _LAYERS)
        ]
    pattern = WINDOW_PATTERNS.value.get(model_type)
    if pattern is not None and pattern.key is not None:
        ways += [base | {"sliding_window": 64, pattern.key: period} for period in (1, 3)]
    # What no layer rotates the positions of is no matter of windows.
    return [way for way in ways if model_type != "smollm3" or not way.get("use_sliding_window")]


def test_windows_are_those_of_the_config_classes() -> None:
    tables = (ASKED_FOR_WINDOWS, DEFAULT_WINDOWS, LAYERS_BEFORE_WINDOWS, WINDOW_PATTERNS)
    kinds = sorted({"llama", "mixtral"}.union(*(table.value for table in tables)) - {"gpt_oss"})
    ways = [way for kind in kinds for way in written_ways(kind)]
    assert PYTHON is not None
    words = [PYTHON, "-c", _ASK]
    done = subprocess.run(
        words, input=json.dumps(ways), capture_output=True, text=True, env={"HF_HUB_OFFLINE": "1"}, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]

    for way, theirs in zip(ways, json.loads(done.stdout), strict=True):
        if theirs == "refused":
            assert way.get("sliding_window", 0) is None, way
            continue
        assert list(windows_of(model_of(way, "0.33.0"), _LAYERS)) == theirs, way


_ASK_WIDTHS = """
import json, sys
from transformers import CONFIG_MAPPING
def width(name):
    config = CONFIG_MAPPING[name](hidden_size=96, num_attention_heads=4)
    config.allow_global_per_layer_attribute_access = True
    return config.head_dim
print(json.dumps({name: width(name) for name in json.loads(sys.stdin.read())}))
"""


def test_widths_of_heads_are_those_of_the_config_classes() -> None:
    assert PYTHON is not None
    asked = json.dumps(sorted(DEFAULT_HEAD_WIDTHS.value))
    done = subprocess.run(
        [PYTHON, "-c", _ASK_WIDTHS],
        input=asked, capture_output=True, text=True, env={"HF_HUB_OFFLINE": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]

    assert json.loads(done.stdout) == dict(DEFAULT_HEAD_WIDTHS.value)


_ASK_KV_HEADS = """
import json, sys
from transformers import CONFIG_MAPPING
def heads(written):
    config = CONFIG_MAPPING[written["model_type"]](**written)
    config.allow_global_per_layer_attribute_access = True
    return config.num_key_value_heads
print(json.dumps([heads(one) for one in json.loads(sys.stdin.read())]))
"""


def test_kv_heads_are_those_of_the_config_classes() -> None:
    """Of models that count them by themselves, and of some that have as many as attention heads."""
    kinds = sorted({"llama", "olmo2", "phi3"}.union(DEFAULT_KV_HEADS.value, ONE_KV_HEAD_CONFIG_CLASSES.value))
    ways: list[Json] = [{"model_type": kind, "num_attention_heads": 64} for kind in kinds]
    ways += [{"model_type": "gpt_bigcode", "n_head": 64, "multi_query": asked} for asked in (True, False)]
    assert PYTHON is not None
    done = subprocess.run(
        [PYTHON, "-c", _ASK_KV_HEADS],
        input=json.dumps(ways), capture_output=True, text=True, env={"HF_HUB_OFFLINE": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]

    assert [num_kv_heads(way) for way in ways] == json.loads(done.stdout)


_ASK_MTP_LAYERS = """
from transformers import CONFIG_MAPPING
print(CONFIG_MAPPING["deepseek_v4"]().num_nextn_predict_layers)
"""


def test_mtp_layers_of_deepseek_v4_are_counted_by_its_config_class() -> None:
    assert PYTHON is not None
    done = subprocess.run(
        [PYTHON, "-c", _ASK_MTP_LAYERS],
        capture_output=True, text=True, env={"HF_HUB_OFFLINE": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]

    assert mtp_layers({"model_type": "deepseek_v4"}).predicted_tokens == int(done.stdout)
