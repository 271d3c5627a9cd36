"""Which model types share their embedding with the output head by default, against the classes of their configs."""

import json
import subprocess

import pytest

from servespec.compiler.facts.decoder_layers import TIED_MODEL_TYPES
from tests.differential.engine_process import PYTHON

pytestmark = pytest.mark.engine

UNTIED = ("deepseek_v3", "glm4_moe", "gpt_oss", "llama", "mixtral", "qwen2", "qwen3", "qwen3_moe", "qwen3_next")
_ASK = """
import json, sys
from transformers import CONFIG_MAPPING
found = {}
for name in json.loads(sys.argv[1]):
    config = CONFIG_MAPPING[name]().get_text_config()
    found[name] = bool(config.tie_word_embeddings)
print(json.dumps(found))
"""


def test_defaults_of_the_config_classes() -> None:
    if PYTHON is None:
        pytest.skip("needs the embedded engine's transformers")
    names = [*sorted(TIED_MODEL_TYPES.value), *UNTIED]
    words = [PYTHON, "-c", _ASK, json.dumps(names)]
    done = subprocess.run(words, capture_output=True, text=True, env={"HF_HUB_OFFLINE": "1"}, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]

    assert json.loads(done.stdout) == dict.fromkeys(TIED_MODEL_TYPES.value, True) | dict.fromkeys(UNTIED, False)
