"""Broken specs, made from good ones by one change each, with where and how each fault has to be told.

Changes are to the text, line by line, so that the place of every fault is known without reading the YAML again.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

EAGLE3: Final = """\
servespec: 1
model:
  id: Qwen/Qwen3-30B-A3B
  dtype: auto
  max_model_len: 32768
hardware:
  gpu: h200
  count: 2
parallel:
  tensor_parallel_size: 2
  enable_expert_parallel: true
scheduler:
  max_num_seqs: 256
  max_num_batched_tokens: 8192
speculative:
  method: eagle3
  model: Tengyunw/qwen3_30b_moe_eagle3
  num_speculative_tokens: 7
  draft_sample_method: greedy
compilation:
  cudagraph_mode: FULL_AND_PIECEWISE
  max_prefill_cudagraph_capture_tokens: 8192
  max_decode_cudagraph_capture_requests: 256
  max_decode_cudagraph_capture_tokens: 4096
memory:
  gpu_memory_utilization: 0.92
  kv_cache_dtype: auto
engine:
  name: vllm
  version: 0.33.0
  lowering: auto
serve:
  host: 127.0.0.1
  port: 8000
"""
TIERS: Final = """\
servespec: 1
model:
  id: meta-llama/Llama-3.1-8B-Instruct
  revision: main
hardware:
  gpu: b200
scheduler:
  max_num_seqs: 512
  max_num_batched_tokens: 8192
speculative:
  method: eagle3
  model: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
  num_speculative_tokens: 5
  dynamic:
    - up_to: 16
      num_speculative_tokens: 5
    - num_speculative_tokens: 3
lora:
  max_loras: 4
  specialize_active_lora: false
performance_mode: balanced
remedies:
  weak_aux_outputs: auto
  one_capture_stream: false
compilation:
  prefill_cudagraph_capture_token_sizes: [512, 1024, 2048]
  decode_cudagraph_capture_request_sizes: [1, 8, 64]
memory:
  kv_cache_memory_bytes: 40GiB
  max_cudagraph_memory: 8GiB
serve:
  port: 8001
  ready_timeout_seconds: 900
"""
LEGACY: Final = """\
servespec: 1
model:
  id: Qwen/Qwen3-8B
  served_model_name: mine
  trust_remote_code: false
hardware:
  gpu: h100
attention:
  backend: FLASH_ATTN
scheduler:
  max_num_seqs: 128
speculative:
  method: ngram
  num_speculative_tokens: 4
compilation:
  cudagraph_capture_sizes: [1, 2, 4, 8, 64, 512]
engine:
  version: 0.32.0
  model_runner: auto
serve:
  host: 127.0.0.1
"""
GOOD: Final[Mapping[str, str]] = {"eagle3": EAGLE3, "tiers": TIERS, "legacy": LEGACY}


@dataclass(frozen=True, slots=True)
class Fault:
    """What has to be told of one fault: its line and column, from 1, and words of the message or the help.

    ``first`` has to come before any other name in the help.
    """

    line: int
    column: int
    words: tuple[str, ...] = ()
    first: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A spec with what is wrong in it; ``kind`` is what sort of slip was made."""

    name: str
    kind: str
    text: str
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class _Key:
    """A line `key: value` of a good spec; ``section`` is '' at the top."""

    row: int
    indent: int
    section: str
    name: str
    value: str


_LINE = re.compile(r"( *)(- )?(\w+):(?: (.*))?$")


def _keys(text: str) -> Iterator[_Key]:
    section = ""
    for row, line in enumerate(text.splitlines()):
        found = _LINE.match(line)
        assert found is not None, line
        indent, name = len(found[1]) + len(found[2] or ""), found[3]
        section = name if indent == 0 else section
        yield _Key(row, indent, "" if indent == 0 else section, name, found[4] or "")


def _row(text: str, name: str) -> int:
    return next(key.row for key in _keys(text) if key.name == name)


def _rewritten(text: str, row: int, line: str) -> str:
    lines = text.splitlines()
    lines[row] = line
    return "\n".join(lines) + "\n"


def _line(text: str, row: int) -> str:
    return text.splitlines()[row]


def corpus() -> tuple[Broken, ...]:
    found = [broken for name, text in GOOD.items() for broken in _of(name, text)]
    return (*found, *_pairs(found))


def _of(name: str, text: str) -> Iterator[Broken]:
    for make in _MAKERS:
        for number, broken in enumerate(make(text)):
            yield replace(broken, name=f"{name}-{make.__name__[1:]}-{number}", kind=make.__name__[1:])


# Names


_SLIPS = (
    lambda name: name[:-1],
    lambda name: name[0] + name[2:] if len(name) > 3 else name + name[-1],
    lambda name: name[:2] + name[1] + name[2:],
    lambda name: name[:-2] + name[-1] + name[-2],
)


def _typos(text: str) -> Iterator[Broken]:
    """Every key with a letter left out, doubled, or two swapped; camel case and dashes."""
    for key in _keys(text):
        for at, slip in enumerate((*_SLIPS, _camel, _dashed)):
            wrong = slip(key.name)
            if wrong == key.name or (at + key.row) % 2:
                continue
            line = _line(text, key.row).replace(f"{key.name}:", f"{wrong}:", 1)
            yield _broken(_rewritten(text, key.row, line), Fault(key.row + 1, key.indent + 1, (wrong,), key.name))


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


# Values


_NUMBERS = ("count", "size", "len", "seqs", "tokens", "port", "max_loras", "seconds", "requests")
_BOOLEANS = ("true", "false")


def _is_number(key: _Key) -> bool:
    return key.value.isdigit() and key.name.endswith(_NUMBERS) and key.name != "servespec"


def _value_column(key: _Key) -> int:
    return key.indent + len(key.name) + 3


def _wrong_types(text: str) -> Iterator[Broken]:
    for key in _keys(text):
        for wrong in _wrong_values(key):
            line = _line(text, key.row)[: _value_column(key) - 1] + wrong
            yield _broken(_rewritten(text, key.row, line), Fault(key.row + 1, _value_column(key), (key.name,)))


def _wrong_items(text: str) -> Iterator[Broken]:
    """An entry of a list, which has a place of its own."""
    for key in _keys(text):
        for wrong in ("two", "0", "-4", "[2]", "1.5") if key.value.startswith("[") else ():
            column = _value_column(key) + len("[1, ")
            line = f"{_line(text, key.row)[: _value_column(key) - 1]}[1, {wrong}]"
            yield _broken(_rewritten(text, key.row, line), Fault(key.row + 1, column, (f"{key.name}[1]",)))


def _wrong_values(key: _Key) -> tuple[str, ...]:
    if _is_number(key):
        return ("many", "-1", "1.5", "[1]", "{a: 1}", "true")
    if key.value in _BOOLEANS:
        return ("maybe", "7", "[true]")
    if key.value.startswith("["):
        return ("512", "{a: 1}")
    if key.name in ("method", "lowering", "performance_mode", "cudagraph_mode", "model_runner"):
        return ("[a]", "{a: 1}", "12")
    if key.name == "gpu":
        return ("[a]", "12")
    if key.name == "gpu_memory_utilization":
        return ("92", "-0.1", "most", "[0.9]")
    if key.value.endswith("GiB"):
        return ("large", "-1GiB", "[1]", "40 GiBytes")
    return ()


def _wrong_units(text: str) -> Iterator[Broken]:
    """A cap in the other kind's unit, and a number with words behind it."""
    names = {
        "max_prefill_cudagraph_capture_tokens": "max_prefill_cudagraph_capture_requests",
        "max_decode_cudagraph_capture_requests": "max_decode_cudagraph_capture_request",
        "prefill_cudagraph_capture_token_sizes": "prefill_cudagraph_capture_request_sizes",
        "decode_cudagraph_capture_request_sizes": "decode_cudagraph_capture_token_sizes",
        "max_num_batched_tokens": "max_num_batched_requests",
    }
    for key in _keys(text):
        if key.name in names:
            line = _line(text, key.row).replace(key.name, names[key.name])
            yield _broken(
                _rewritten(text, key.row, line), Fault(key.row + 1, key.indent + 1, (names[key.name],), key.name)
            )
        if _is_number(key):
            for unit in (" tokens", " requests", "k tokens"):
                line = _line(text, key.row) + unit
                yield _broken(_rewritten(text, key.row, line), Fault(key.row + 1, _value_column(key), (key.name,)))


# Places


def _wrong_places(text: str) -> Iterator[Broken]:
    """A key of a section at the top level, and below another section."""
    for key in _keys(text):
        if key.indent != 2 or key.value == "" or key.name in ("model", "name", "method", "version", "port", "host"):
            continue
        line = f"{key.name}: {key.value}"
        lines = text.splitlines()
        if _siblings(text, key) == 1:
            continue
        without = [one for row, one in enumerate(lines) if row != key.row]
        right = f"{key.section}.{key.name}"
        yield _broken("\n".join([*without, line]) + "\n", Fault(len(without) + 1, 1, (key.name, right)))
        below = "serve" if key.section != "serve" else "memory"
        if f"{below}:" in without:
            at = without.index(f"{below}:") + 1
            moved = [*without[:at], f"  {line}", *without[at:]]
            yield _broken("\n".join(moved) + "\n", Fault(at + 1, 3, (key.name, right)))


def _siblings(text: str, key: _Key) -> int:
    return sum(one.section == key.section and one.indent == key.indent for one in _keys(text))


def _missing(text: str) -> Iterator[Broken]:
    """Keys that a spec cannot do without, each left out with all that is below it."""
    needed = {("", "servespec"): 1, ("", "model"): 1, ("", "hardware"): 1}
    keys = list(_keys(text))
    for key in keys:
        if (key.section, key.name) in needed:
            after = next((one.row for one in keys if one.row > key.row and one.indent == 0), len(text.splitlines()))
            lines = text.splitlines()
            yield _broken("\n".join([*lines[: key.row], *lines[after:]]) + "\n", Fault(1, 1, (key.name, "missing")))
    for key in keys:
        if (key.section, key.name) in (("model", "id"), ("hardware", "gpu")) and _siblings(text, key) > 1:
            lines = [line for row, line in enumerate(text.splitlines()) if row != key.row]
            section = next(one for one in keys if one.name == key.section and one.indent == 0)
            yield _broken("\n".join(lines) + "\n", Fault(section.row + 1, 1, (key.name, "missing")))


def _conflicts(text: str) -> Iterator[Broken]:
    """New and legacy fields together, each cited; a key twice; a list with its cap below it."""
    rows = {key.name: key for key in _keys(text)}
    new = [key for key in rows.values() if "fill_cudagraph" in key.name or "decode_cudagraph" in key.name]
    lines = text.splitlines()
    at = rows["compilation"].row + 1
    for line in ("  cudagraph_capture_sizes: [1, 2, 4]", "  max_cudagraph_capture_size: 512"):
        if new:
            name, cited = line.split(":")[0].strip(), new[0].name
            broken = "\n".join([*lines[:at], line, *lines[at:]]) + "\n"
            yield _broken(broken, Fault(at + 1, 3, (name, cited)), Fault(new[0].row + 2, 3, (name, cited)))
    for key in rows.values():
        if key.indent == 2 and key.value:
            again = [*lines[: key.row + 1], lines[key.row], *lines[key.row + 1 :]]
            yield _broken("\n".join(again) + "\n", Fault(key.row + 2, 3, (key.name,)))


# The engine's own names


def _engine_flags(text: str) -> Iterator[Broken]:
    """Flags and variables that have a field here, that the engine does not have, or that are not to be set."""
    lines = text.splitlines()
    own = [line for line in lines if not line.startswith("engine:")]
    cut = lines.index("engine:") if "engine:" in lines else len(lines)
    body = lines[cut + 1 :] if cut < len(lines) else []
    inside = body[: next((row for row, one in enumerate(body) if not one.startswith(" ")), len(body))]
    rest = [line for line in own if line not in inside]
    flags = (
        ("args", "max-num-seqs: 4", "scheduler.max_num_seqs"),
        ("args", "gpu_memory_utilization: 0.5", "memory.gpu_memory_utilization"),
        ("args", "speculative-config: {method: ngram}", "speculative"),
        ("args", "compilation-config: {cudagraph_mode: FULL}", "compilation"),
        ("args", "enable-chunked-prefil: true", "enable-chunked-prefill"),
        ("args", "no-such-flag-at-all: 1", "no-such-flag-at-all"),
        ("args", "api-key: secret-secret", "VLLM_API_KEY"),
        ("env", "VLLM_USE_V2_MODEL_RUNNER: 1", "engine.model_runner"),
        ("env", "VLLM_USE_BREAKABLE_CUDAGRAPH: 1", "compilation.breakable_cudagraph"),
        ("env", "LD_PRELOAD: /tmp/a.so", "LD_PRELOAD"),
        ("env", "VLLM_NO_SUCH_THING: 1", "VLLM_NO_SUCH_THING"),
    )
    for section, line, word in flags:
        made = [*rest, "engine:", *inside, f"  {section}:", f"    {line}"]
        yield _broken("\n".join(made) + "\n", Fault(len(made), 5, (word,)))


def _outside(text: str) -> Iterator[Broken]:
    """What no spec of this form can hold: a later format, tabs, text that is no mapping."""
    lines = text.splitlines()
    yield _broken("\n".join(["servespec: 2", *lines[1:]]) + "\n", Fault(1, 12, ("servespec",)))
    tabbed = [*lines[:2], "\t" + lines[2].strip(), *lines[3:]]
    yield _broken("\n".join(tabbed) + "\n", Fault(3, 1, ("tab",)))
    yield _broken("- " + lines[0] + "\n", Fault(1, 3, ("mapping",)))
    device = text.replace(_line(text, _row(text, "gpu")), "  gpu: {devise: box.json}")
    yield _broken(device, Fault(_row(text, "gpu") + 1, 9, ("devise",), "device"))


def _broken(text: str, *faults: Fault) -> Broken:
    return Broken("", "", text, faults)


def _pairs(found: list[Broken]) -> Iterator[Broken]:
    """Two typos in one file, which both have to be told in one run."""
    for name in GOOD:
        typos = [one for one in found if one.kind == "typos" and one.name.startswith(name)]
        for first, second in zip(typos[::7], typos[3::7], strict=False):
            base = GOOD[name].splitlines()
            rows = [one.faults[0].line - 1 for one in (first, second)]
            if rows[0] == rows[1] or any(not base[row].startswith("  ") for row in rows):
                continue
            lines = [
                first.text.splitlines()[row]
                if row == rows[0]
                else second.text.splitlines()[row]
                if row == rows[1]
                else line
                for row, line in enumerate(base)
            ]
            yield Broken(
                f"{first.name}+{second.name}", "pairs", "\n".join(lines) + "\n", (*first.faults, *second.faults)
            )


_MAKERS: Final = (
    _typos,
    _wrong_types,
    _wrong_items,
    _wrong_units,
    _wrong_places,
    _missing,
    _conflicts,
    _engine_flags,
    _outside,
)
