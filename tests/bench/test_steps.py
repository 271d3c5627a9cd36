"""Steps as a server's metrics count them."""

from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from servespec.runtime.bench.steps import Counted, counted_steps, parsed, steps_between
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


def test_a_models_name_may_hold_anything() -> None:
    """As prometheus_client writes it: labels by their names, quotes and line breaks escaped."""
    line = r'servespec:target_steps_total{engine="0",mode="FULL",model_name="a} \"b\", mode=\"NONE\"\n"} 3.0'
    assert parsed(line) == {("FULL", "steps"): 3}


def test_a_proxy_is_not_asked_for_a_server_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    assert counted_of(PAGE.encode(), len(PAGE)) == parsed(PAGE)


def test_an_answer_that_is_cut_short_or_no_text_counts_nothing() -> None:
    """As of a server that dies in between; the bench says that itself."""
    assert counted_of(b"servespec:", 1000) == counted_of(b"\xff", 1) == Counter()


def counted_of(body: bytes, announced_bytes: int) -> Counted:
    """The steps that a server tells with this page."""

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(announced_bytes))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        serving = Thread(target=server.handle_request)
        serving.start()
        counted = counted_steps(f"http://127.0.0.1:{server.server_port}")
        serving.join()
    return counted


def test_a_cell_has_what_was_counted_meanwhile() -> None:
    before = Counter({("FULL", "steps"): 5, ("NONE", "steps"): 2})
    after = Counter({("FULL", "steps"): 9, ("FULL", "unpadded_tokens"): 4, ("NONE", "steps"): 2})

    assert steps_between(before, after) == {"FULL": {"steps": 4, "unpadded_tokens": 4, "padding_tokens": 0}}
    assert steps_between(after, after) is None


def test_a_server_that_does_not_tell_counts_nothing() -> None:
    assert counted_steps(f"http://127.0.0.1:{free_port()}") == Counter()
