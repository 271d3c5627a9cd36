"""The shared vocabulary of property tests: specs that hold together, and ways of breaking them."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.plans import Json, model_folder, spec_of

EXTENSION = {"version": "0.33.0", "lowering": "extension"}

# Method, target, draft, and the Ks that go with them.
_DRAFTERS: tuple[tuple[str | None, str, str | None, tuple[int, ...]], ...] = (
    (None, "llama-3.1-8b", None, ()),
    ("eagle3", "qwen3-8b", "eagle3-draft", (1, 2, 3, 5, 7)),
    ("mtp", "glm-4.5-air", None, (1, 2, 4)),
    ("mtp", "three-mtp-modules", None, (1, 2, 3, 6)),
    ("dspark", "qwen3-8b", "dspark-draft", (1, 3, 5, 7)),
    ("dspark", "qwen3-8b", "dspark-draft-without-anchor", (1, 3, 7)),
    ("dflash", "qwen3-8b", "dflash-draft", (1, 3, 7)),
    ("ngram", "qwen3-8b", None, (1, 4)),
)


@st.composite
def tiers(draw: st.DrawFn, k: int, max_num_seqs: int) -> list[list[int]]:
    """Inclusive ranges from 1 to ``max_num_seqs``, in the engine's notation."""
    ends = sorted(draw(st.sets(st.integers(1, max_num_seqs), min_size=1, max_size=3)) | {max_num_seqs})
    starts = [1, *(end + 1 for end in ends[:-1])]
    return [[start, end, draw(st.integers(0, k))] for start, end in zip(starts, ends, strict=True)]


def load_aware(max_num_seqs: int) -> st.SearchStrategy[Json]:
    """From the first load that both ways share to one that no batch has."""
    return st.fixed_dictionaries({"from_requests": st.integers(2, max_num_seqs + 2)})


@st.composite
def drafting(
    draw: st.DrawFn, max_num_seqs: int, *, can_follow_load: bool = False, has_lora: bool = False
) -> tuple[str, Json | None]:
    """A target model and the speculative section that goes with it.

    Adaptive verification does not run with tiers, nor with LoRA; only the extension lets it follow the load.
    """
    method, model, draft, ks = draw(st.sampled_from(_DRAFTERS))
    if method is None:
        return model, None
    k = draw(st.sampled_from(ks))
    section: Json = {"method": method, "num_speculative_tokens": k}
    if draft is not None:
        section["model"] = model_folder(draft)
    if method == "ngram":
        section["prompt_lookup_max"] = 4
        return model, section
    ways = ["all", "tiers", *([] if has_lora else ["adaptive"]), *(["load_aware"] * 2 if can_follow_load else [])]
    match draw(st.sampled_from(ways)):
        case "tiers":
            section["num_speculative_tokens_per_batch_size"] = draw(tiers(k, max_num_seqs))
        case "adaptive":
            section["enable_adaptive_verification"] = True
        case "load_aware":
            section["load_aware"] = draw(load_aware(max_num_seqs))
    return model, section


def verifies_adaptively(section: Json | None) -> bool:
    return section is not None and not section.keys().isdisjoint({"enable_adaptive_verification", "load_aware"})


def verification_grids(section: Json | None) -> st.SearchStrategy[Json]:
    """Where adaptive verification has graphs; nothing where it is off."""
    if not verifies_adaptively(section):
        return st.just({})
    return st.sampled_from([{}, *({"adaptive_verification_grid": grid} for grid in ("dense", "reachable", "sparse"))])


def sizes(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, most), min_size=1, max_size=8, unique=True).map(sorted)


@st.composite
def new_fields(draw: st.DrawFn, max_num_seqs: int, step_tokens: int, *, needs_decode: bool = False) -> Json:
    """Some of the five fields; a list and its cap never stand together, and `[]` not where decode graphs are needed."""
    prefill = st.one_of(
        st.fixed_dictionaries({"max_prefill_cudagraph_capture_tokens": st.integers(1, step_tokens)}),
        st.fixed_dictionaries({"prefill_cudagraph_capture_token_sizes": sizes(step_tokens) | st.just([])}),
        st.just({}),
    )
    request_sizes = sizes(max_num_seqs) if needs_decode else sizes(max_num_seqs) | st.just([])
    decode = st.one_of(
        st.fixed_dictionaries({"max_decode_cudagraph_capture_requests": st.integers(1, max_num_seqs)}),
        st.fixed_dictionaries({"decode_cudagraph_capture_request_sizes": request_sizes}),
        st.just({}),
    )
    budget = st.one_of(
        st.just({}),
        st.fixed_dictionaries({"max_decode_cudagraph_capture_tokens": st.integers(1, 4096) | st.just("unlimited")}),
    )
    return {**draw(prefill), **draw(decode), **draw(budget)}


def legacy_fields(step_tokens: int) -> st.SearchStrategy[Json]:
    return st.one_of(
        st.fixed_dictionaries({"cudagraph_capture_sizes": sizes(step_tokens)}),
        st.fixed_dictionaries({"max_cudagraph_capture_size": st.integers(1, step_tokens)}),
    )


@st.composite
def limits(draw: st.DrawFn) -> tuple[int, int]:
    """max_num_seqs, and a max_num_batched_tokens that is not below it."""
    seqs = draw(st.integers(1, 160))
    return seqs, draw(st.integers(max(seqs, 64), 4096))


@st.composite
def specs(draw: st.DrawFn, *, legacy: bool = True, engine: Json | None = None) -> Json:
    """A spec that the rules of the spec accept; what the engine refuses may still refuse it."""
    seqs, tokens = draw(limits())
    lora = draw(st.sampled_from((None, None, {"max_loras": 2, "specialize_active_lora": True})))
    engine = engine or {
        "version": "0.33.0",
        "lowering": draw(st.sampled_from(("auto", "legacy", "none", "extension"))),
    }
    can_follow_load = lora is None and engine["lowering"] == "extension"
    model, speculative = draw(drafting(seqs, can_follow_load=can_follow_load, has_lora=lora is not None))
    is_adaptive = verifies_adaptively(speculative)
    fields = [st.just({}), new_fields(seqs, tokens, needs_decode=is_adaptive)]
    fields += [legacy_fields(tokens)] if legacy else []
    return spec_of(
        model,
        draw(st.sampled_from(("gb200", "h200") if is_adaptive else ("gb200", "h200", "rtx-pro-6000"))),
        scheduler={"max_num_seqs": seqs, "max_num_batched_tokens": tokens},
        speculative=speculative,
        compilation={**draw(st.one_of(*fields)), **draw(verification_grids(speculative))},
        performance_mode=draw(st.sampled_from(("balanced", "interactivity"))),
        lora=lora,
        engine=engine,
    )


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(("auto", "0", "8k", "1e9", "[]", "NONE", "unlimited", "40GiB", "92%", "cpu")),
    st.lists(st.integers(-3, 5000) | st.text(max_size=3), max_size=4),
    st.dictionaries(st.text(max_size=6), st.integers() | st.none(), max_size=3),
)


def paths_of(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place below the top of plain data."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, below in entries:
        yield (*path, step)
        yield from paths_of(below, (*path, step))


def changed(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """``data`` with ``value`` at ``path``; the original is left as it is."""
    if not path:
        return value
    if isinstance(data, dict):
        return {**data, path[0]: changed(data.get(path[0]), path[1:], value)}
    return [changed(item, path[1:], value) if at == path[0] else item for at, item in enumerate(data)]
