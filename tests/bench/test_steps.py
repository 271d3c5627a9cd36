"""Steps as a server's metrics count them."""

from collections import Counter

from servespec.runtime.bench.steps import counted_steps, parsed, steps_between
from servespec.runtime.health import free_port

PAGE = """# HELP servespec:target_steps_total Steps of the target model.
# TYPE servespec:target_steps_total counter
servespec:target_steps_total{engine="0",mode="FULL",model_name="m"} 3.0
servespec:target_steps_total{engine="1",mode="FULL",model_name="m"} 1e+06
servespec:target_padding_tokens_total{engine="0",mode="NONE",model_name="m"} 7.0
servespec:target_steps_created{engine="0",mode="FULL",model_name="m"} 1.7e+09
vllm:num_requests_running{engine="0",mode="FULL"} 2.0
"""


def test_engines_are_added_and_other_series_left_out() -> None:
    assert parsed(PAGE) == {("FULL", "steps"): 1_000_003, ("NONE", "padding_tokens"): 7}


def test_a_cell_has_what_was_counted_meanwhile() -> None:
    before = Counter({("FULL", "steps"): 5, ("NONE", "steps"): 2})
    after = Counter({("FULL", "steps"): 9, ("FULL", "unpadded_tokens"): 4, ("NONE", "steps"): 2})

    assert steps_between(before, after) == {"FULL": {"steps": 4, "unpadded_tokens": 4, "padding_tokens": 0}}
    assert steps_between(after, after) is None


def test_a_server_that_does_not_tell_counts_nothing() -> None:
    assert counted_steps(f"http://127.0.0.1:{free_port()}") == Counter()
