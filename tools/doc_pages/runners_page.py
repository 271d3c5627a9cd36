"""docs/reference/runners.md: what every runner captures, by engine version, devices, method and K.

Every number is compiled here from a spec; none is written by hand.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from doc_pages.compiling import plan_of_values
from doc_pages.markdown import code, page, sentences, table
from servespec.compiler.facts.devices import DEVICES, is_cpu
from servespec.compiler.facts.engine_fields import versions
from servespec.compiler.graphs.shape import Row, Runner
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError

DRAFTS = (0, 1, 2, 3, 5, 7, 15)
_TIERS = ((16, 7), (256, 3), (None, 1))

MODEL: Mapping[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "dtype": "bfloat16",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
"""The layout of Qwen3-30B-A3B; graph sizes depend on it only through the attention backend."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices that capture the same, with the limits of one step that the engine gives them; the first is compiled."""

    gpus: tuple[str, ...]
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def gpu(self) -> str:
        return self.gpus[0]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to draft. ``routines`` are the rows it is shown for, ``drafts`` the Ks it exists for."""

    title: str
    speculative: Mapping[str, Any]
    routines: tuple[str, ...]
    drafts: tuple[int, ...] = DRAFTS[1:]
    modules: bool = False


_TARGET = Method("target", {"method": "eagle3", "model": "draft"}, ("piecewise", "uniform_decode"), DRAFTS)
_ADAPTIVE = Method(
    "target under adaptive verification",
    {"method": "dspark", "model": "draft", "enable_adaptive_verification": True},
    ("adaptive_verification",),
)
METHODS = (
    _TARGET,
    _ADAPTIVE,
    Method(
        "EAGLE, EAGLE3 and single-module MTP",
        {"method": "eagle3", "model": "draft"},
        ("step0_piecewise", "step0_uniform", "later_steps"),
    ),
    Method("multi-module MTP, K modules", {"method": "mtp"}, ("block",), DRAFTS[2:], modules=True),
    Method("DSpark", {"method": "dspark", "model": "draft"}, ("block",)),
    Method("DFlash family", {"method": "dflash", "model": "draft"}, ("block",)),
)


def runners_page() -> str:
    parts = [_part(version, machine) for version in reversed(versions()) for machine in machines(version)]
    return page("Runners", _introduction(), *parts)


@cache
def machines(version: str) -> tuple[Machine, ...]:
    """Every GPU of the device table, with those that capture the same together, in the table's order."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for gpu in (name for name, device in DEVICES.items() if not is_cpu(device)):
        groups.setdefault(captured(version, gpu), []).append(gpu)
    return tuple(Machine(tuple(gpus), *_limits(version, gpus[0])) for gpus in groups.values())


def captured(version: str, gpu: str) -> tuple[object, ...]:
    """What tells devices apart: the limits of a step, and the target's rows at K = 7, by list and by stock."""
    machine = Machine((gpu,), *_limits(version, gpu))
    cells = [
        _cell(version, machine, method, source, routine, 7)
        for method in (_TARGET, _ADAPTIVE)
        for routine in method.routines
        for source in ("legacy", "stock")
    ]
    return _limits(version, gpu), tuple(cells)


@cache
def _limits(version: str, gpu: str) -> tuple[int, int]:
    """The requests and tokens of a step that the engine takes on a device by itself."""
    spec = {**_spec(version, Machine((gpu,), 0, 0), "legacy", None), "scheduler": {}}
    resolved = plan_of_values(spec, MODEL, with_stock=False).to_json()["resolved"]
    requests, tokens = (resolved[f"scheduler.{name}"]["value"] for name in ("max_num_seqs", "max_num_batched_tokens"))
    return requests, tokens


def _introduction() -> str:
    return sentences(
        "A cell is the number of captured sizes and the largest: `48 @ 512`. "
        "`piecewise` and `adaptive_verification` count tokens, all other routines count requests. "
        "`fields` is what the five capture fields ask for, at their defaults, captured by the extension lowering. "
        "`list` is what the engine captures when it is given the closest single token list, the legacy lowering. "
        "`stock` is the unmodified engine without either. "
        "Every number is modelled: it is compiled from a spec, none is measured. "
        "The model is a mixture of experts with grouped-query attention; a model whose attention backend supports "
        "fewer graphs has fewer rows. "
        "An empty cell is a graph that does not exist: one draft has no later steps, one module drafts as EAGLE does, "
        "and adaptive verification is refused where the attention cannot replay batches trimmed on the GPU. "
        "GPUs that capture the same stand together; a CPU captures nothing."
    )


def _part(version: str, machine: Machine) -> str:
    """The tables of one version on one machine; one that only repeats the newest version's says so."""
    title = (
        f"## vLLM {version} on {', '.join(machine.gpus)}: {machine.max_num_seqs:,} requests, "
        f"{machine.max_num_batched_tokens:,} tokens"
    )
    newest = versions()[-1]
    if version != newest and _common(version, machine) == _common(newest, machine):
        return f"{title}\n\n`list` and `stock` are those of vLLM {newest} on this machine; it cannot capture `fields`."
    by_drafts = table(("runner", "routine", "graphs", *(f"K={k}" for k in DRAFTS)), _by_drafts(version, machine))
    headers, rows = _by_tier(version, machine)
    tiers = "EAGLE3 with K = 7 for up to 16 requests, 3 for up to 256, 1 above:"
    return "\n\n".join([title, by_drafts, tiers, table(headers, rows)])


def _common(version: str, machine: Machine) -> tuple[object, ...]:
    """What every version can do: the rows of `list` and `stock`."""
    by_drafts = [row for row in _by_drafts(version, machine) if row[2] != _NAMES["extension"]]
    headers, rows = _by_tier(version, machine)
    shared = [at for at, name in enumerate(headers) if name != _NAMES["extension"]]
    return by_drafts, [[row[at] for at in shared] for row in rows if any(row[at] for at in shared[4:])]


def _lowerings(version: str) -> tuple[str, ...]:
    """Only an engine with the worker extension hook can capture what the fields ask for."""
    return ("extension", "legacy") if version == versions()[-1] else ("legacy",)


_NAMES = {"extension": "fields", "legacy": "list", "stock": "stock"}


def _by_drafts(version: str, machine: Machine) -> list[tuple[str, ...]]:
    lowerings = _lowerings(version)
    return [row for method in METHODS for row in _method_rows(version, machine, method, lowerings)]


def _method_rows(version: str, machine: Machine, method: Method, lowerings: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for routine in method.routines:
        for source in (*lowerings, "stock"):
            cells = [_cell(version, machine, method, source, routine, k) for k in DRAFTS]
            yield (method.title, code(routine), _NAMES[source], *cells)


def _cell(version: str, machine: Machine, method: Method, source: str, routine: str, drafts: int) -> str:
    if drafts not in method.drafts:
        return ""
    try:
        rows = _rows(_plan(version, machine, method.title, drafts, source), source)
    except SpecError:
        # Of attention that cannot replay batches trimmed on the GPU.
        assert method is _ADAPTIVE
        return ""
    return ", ".join(size_words(row) for row in rows if str(row.routine) == routine)


def size_words(row: Row) -> str:
    """`48 @ 512`: how many sizes, and the largest."""
    return f"{len(row.sizes)} @ {row.sizes[-1]}"


def _rows(plan: Plan, source: str) -> Iterable[Row]:
    if source != "stock":
        return plan.graphs.rows
    assert plan.stock is not None
    return plan.stock.graphs.rows


def _plan(version: str, machine: Machine, title: str, drafts: int, source: str) -> Plan:
    """`stock` comes with the first lowering, so that no spec is compiled for it alone."""
    return _compiled(version, machine, title, drafts, _lowerings(version)[0] if source == "stock" else source)


@cache
def _compiled(version: str, machine: Machine, title: str, drafts: int, lowering: str) -> Plan:
    method = next(one for one in METHODS if one.title == title)
    speculative = {**method.speculative, "num_speculative_tokens": drafts} if drafts else None
    target = {**MODEL, "num_nextn_predict_layers": drafts} if method.modules else MODEL
    with_stock = lowering == _lowerings(version)[0]
    return plan_of_values(_spec(version, machine, lowering, speculative), target, with_stock=with_stock)


def _spec(version: str, machine: Machine, lowering: str, speculative: Mapping[str, Any] | None) -> dict[str, Any]:
    limits = {"max_num_seqs": machine.max_num_seqs, "max_num_batched_tokens": machine.max_num_batched_tokens}
    return {
        "servespec": 1,
        "model": {"id": "model"},
        "hardware": {"gpu": machine.gpu},
        "scheduler": limits,
        "engine": {"version": version, "lowering": lowering},
        "speculative": speculative,
    }


# Dynamic speculation


def _by_tier(version: str, machine: Machine) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows under dynamic speculation."""
    lowerings = _lowerings(version)
    columns = {
        _NAMES[source]: tuple(_rows(_tiered_plan(version, machine, source), source)) for source in (*lowerings, "stock")
    }
    keys = list(dict.fromkeys(_tier_key(row) for rows in columns.values() for row in rows))
    body = [(*key, *(_tier_cell(rows, key) for rows in columns.values())) for key in keys]
    return ("runner", "routine", "q", "K", *columns), body


@cache
def _tiered_plan(version: str, machine: Machine, source: str) -> Plan:
    tiers = [
        {"num_speculative_tokens": k} if up_to is None else {"up_to": up_to, "num_speculative_tokens": k}
        for up_to, k in _TIERS
    ]
    speculative = {"method": "eagle3", "model": "draft", "num_speculative_tokens": _TIERS[0][1], "dynamic": tiers}
    lowering = "legacy" if source == "stock" else source
    return plan_of_values(_spec(version, machine, lowering, speculative), MODEL, with_stock=source == "stock")


def _tier_key(row: Row) -> tuple[str, ...]:
    drafts = row.draft_steps if row.draft_steps is not None else _drafts_of(row)
    return (str(row.runner), code(row.routine), str(row.query_len or ""), str(drafts))


def _drafts_of(row: Row) -> object:
    return "" if row.query_len is None or (row.runner is Runner.DRAFTER and row.query_len == 1) else row.query_len - 1


def _tier_cell(rows: Iterable[Row], key: tuple[str, ...]) -> str:
    return ", ".join(size_words(row) for row in rows if _tier_key(row) == key)
