"""The YAML that servespec writes."""

from servespec.schema.dump import dump_yaml
from servespec.schema.source import read_source

SPEC = {
    "servespec": 1,
    "model": {"id": "Qwen/Qwen3-8B", "revision": None, "hf_overrides": {}},
    "speculative": {"dynamic": [{"up_to": 4, "num_speculative_tokens": 7}, {"num_speculative_tokens": 3}]},
    "compilation": {"custom_ops": ["none", "+rms_norm"], "cudagraph_capture_sizes": [1, 2, 4], "splitting_ops": []},
    "memory": {"gpu_memory_utilization": 0.92, "enable_prefix_caching": True},
    "engine": {"version": "0.33.0", "args": {"seed": "7", "name": "true"}},
}
TEXT = """\
servespec: 1
model:
  id: Qwen/Qwen3-8B
  revision: null
  hf_overrides: {}
speculative:
  dynamic:
  - {up_to: 4, num_speculative_tokens: 7}
  - {num_speculative_tokens: 3}
compilation:
  custom_ops: [none, +rms_norm]
  # every second one
  # up to four
  cudagraph_capture_sizes: [1, 2, 4]
  splitting_ops: []
memory:
  gpu_memory_utilization: 0.92
  enable_prefix_caching: true
engine:
  version: 0.33.0
  args:
    seed: "7"
    name: "true"
"""


def test_a_spec_reads_as_a_person_would_write_it() -> None:
    path = ("compilation", "cudagraph_capture_sizes")

    assert dump_yaml(SPEC, {path: "every second one\nup to four"}) == TEXT


def test_it_reads_back() -> None:
    assert read_source(TEXT, "spec.yaml").data == SPEC


def test_a_comment_above_the_first_key_of_the_file() -> None:
    assert dump_yaml({"a": {"b": 1}}, {("a",): "why"}) == "# why\na:\n  b: 1\n"


def test_a_long_list_is_wrapped() -> None:
    text = dump_yaml({"a": list(range(100, 160))})

    assert read_source(text, "a").data == {"a": list(range(100, 160))}
    assert max(map(len, text.splitlines())) <= 105
