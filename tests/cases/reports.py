"""Public bug reports as data, and the specs that they amount to.

The file lies beside the checkout and is no part of this repository; a clone without it has nothing to run.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from servespec.compiler.engine_homes import flag_home
from servespec.compiler.facts.engine_fields import table
from servespec.compiler.graphs.stock import TokenList, stock_token_list
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, SpecError
from servespec.runtime.gather import Options, compile_request
from tests.plans import REPOSITORY, Json, model_folder, source_of

FILE = REPOSITORY.parent / "shared" / "cases" / "reports.jsonl"
VERSION = "0.33.0"

# The arithmetic of graphs asks a device only whether it is of compute capability 10.x; accelerators that the device
# table does not have are planned as one of the others.
DEVICES = {
    "GB200": "gb200",
    "B200": "b200",
    "GB300": "gb300",
    "B300": "b300",
    "H200": "h200",
    "H100": "h100",
    "GB10": "gb10",
    "RTX 5090": "rtx-5090",
    "MI355X": "h200",
    "NPU": "h200",
    "HPU": "h200",
    "any": "h200",
}
DRAFTS = {"eagle3": "eagle3-draft", "dspark": "dspark-draft", "dflash": "dflash-draft"}


def read_reports() -> tuple["Report", ...]:
    if not FILE.is_file():
        return ()
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return tuple(Report(json.loads(line)) for line in lines if line.strip())


class Report:
    """One report. ``alone`` is the engine's own list without our lowering, ``ours`` the plan under the extension."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id: str = data["id"]
        self.kind: str = data["kind"]
        self.input: Json = dict(data["input"])
        self.expected: Json = dict(data["expected"])

    def __repr__(self) -> str:
        return self.id

    def with_input(self, given: Json) -> "Report":
        """The same report about another input."""
        return Report({"id": self.id, "kind": self.kind, "input": given, "expected": self.expected})

    @cached_property
    def spec(self) -> Json:
        return spec_of_report(self.input)

    @cached_property
    def alone(self) -> Plan:
        return self._compiled("none")

    @cached_property
    def ours(self) -> Plan:
        return self._compiled("auto" if self.input.get("runner") == "v1" else "extension")

    @cached_property
    def alone_json(self) -> Json:
        return self.alone.to_json()

    @cached_property
    def ours_json(self) -> Json:
        return self.ours.to_json()

    @cached_property
    def stock_list(self) -> TokenList:
        """The engine's list for the spec without our fields."""
        return stock_token_list(self.alone.resolution.token_list)

    @cached_property
    def findings(self) -> tuple[Diagnostic, ...]:
        """What is said about the spec when nothing but the engine's list is used, refused or not."""
        try:
            return self.alone.diagnostics
        except SpecError as error:
            return error.diagnostics

    @property
    def max_num_seqs(self) -> int:
        return int(self.input["max_num_seqs"])

    def _compiled(self, lowering: str) -> Plan:
        spec = {**self.spec, "engine": {**self.spec["engine"], "lowering": lowering}}
        return compile_spec(compile_request(source_of(spec), Options(with_stock=True)))


def spec_of_report(given: Json) -> Json:
    """A report's input as a spec."""
    tensor, data = given.get("tp") or 1, given.get("dp") or 1
    return {
        "servespec": 1,
        "model": _model(given),
        "hardware": {"gpu": DEVICES[given.get("gpu", "any")], "count": tensor * data},
        "parallel": {"tensor_parallel_size": tensor, "data_parallel_size": data},
        "attention": _written(backend=given.get("attention_backend")),
        "scheduler": _written(
            max_num_seqs=given.get("max_num_seqs"), max_num_batched_tokens=given.get("max_num_batched_tokens")
        ),
        "speculative": _speculative(given),
        "compilation": _compilation(given),
        "engine": _written(version=VERSION, model_runner=given.get("runner"), args=_arguments(given) or None),
        **_emitted(given.get("yaml")),
    }


def _written(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _model(given: Json) -> Json:
    name, overrides = str(given.get("model")), {}
    if given.get("n_predict"):
        overrides["num_nextn_predict_layers"] = given["n_predict"]
    folder = "qwen3-8b"
    if name.startswith("DeepSeek-V4"):
        folder = "deepseek-v4-flash"
    elif given.get("method") == "mtp":
        folder = "glm-4.5-air"
    return _written(id=model_folder(folder), hf_overrides=overrides or None, max_model_len=given.get("max_model_len"))


def _speculative(given: Json) -> Json | None:
    if "speculative_config" in given:
        return dict(given["speculative_config"])
    method = given.get("method")
    if method is None:
        return None
    name = "eagle3" if method == "any" else method
    return _written(
        method=name,
        model=model_folder(DRAFTS[name]) if name in DRAFTS else None,
        num_speculative_tokens=given["k"],
        num_speculative_tokens_per_batch_size=_schedule(given),
        enable_adaptive_verification=given.get("adaptive_verification"),
        enforce_eager=given.get("speculative_enforce_eager"),
        draft_tensor_parallel_size=given.get("draft_tensor_parallel_size"),
    )


def _schedule(given: Json) -> Any:
    """Tiers in the engine's notation; another engine's are upper ends with a K each."""
    ends = given.get("trtllm_draft_len_schedule")
    if ends is None:
        return given.get("schedule")
    ranges, first = [], 1
    for end, k in sorted((int(end), k) for end, k in ends.items()):
        ranges.append([first, end, k])
        first = end + 1
    return ranges


def _compilation(given: Json) -> Json:
    # An Ascend `FULL` captures uniform decode, which is what FULL_DECODE_ONLY says here.
    mode = "FULL_DECODE_ONLY" if (given.get("gpu"), given.get("mode")) == ("NPU", "FULL") else given.get("mode")
    return {
        **_written(
            cudagraph_mode=mode,
            cudagraph_capture_sizes=given.get("legacy_list", given.get("cudagraph_capture_sizes")),
            max_cudagraph_capture_size=given.get("legacy_cap"),
            cuda_graph_sizes=given.get("cuda_graph_sizes"),
            decode_cudagraph_capture_request_sizes=given.get("decode_request_sizes"),
            max_prefill_cudagraph_capture_tokens=given.get("prefill_cap_tokens"),
            max_decode_cudagraph_capture_requests=given.get("decode_cap_requests"),
        ),
        **given.get("compilation_config", {}),
    }


def _arguments(given: Json) -> Json:
    switches = {flag.removeprefix("--"): True for flag in given.get("flags", ())}
    sizes = given.get("top_level_cudagraph_capture_sizes")
    return switches | _written(**{"cudagraph-capture-sizes": sizes})


def _emitted(text: str | None) -> Json:
    """Lines of the engine's own config file, each in its home in a spec."""
    sections: dict[str, Json] = {}
    for name, value in (source_of(text.encode()).data if text else {}).items():
        flag = table(VERSION).flag(name)
        home = flag_home(flag) if flag else None
        section, _, field = (home or f"engine.args.{name}").partition(".")
        sections.setdefault(section, {})[field] = value
    return {"model": {"id": model_folder("qwen3-8b"), **sections.pop("model", {})}, **sections} if sections else {}
