"""The engine's own choice of how many drafts to verify, over a device whose times are known: its prices, and ours."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from servespec.runtime.extension import verification_costs
from servespec.runtime.extension.verification_costs import charge_cached_tokens
from tests.differential.lifting import EngineText
from tests.differential.test_extension import needs_engine, root

pytestmark = needs_engine

MANAGER = "vllm.v1.worker.gpu.spec_decode.adaptive_verification"
MEMBERS = ("batches_to_profile", "set_initial_cost_curves", "set_cost_curves", "get_num_tokens")
RATES = (0.79, 0.61, 0.47, 0.37, 0.29, 0.23, 0.18)
SIZES = [56, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 1792]
MAX_REQUESTS, MAX_TOKENS, MAX_MODEL_LEN, MAX_LOGITS = 512, 8192, 4096, 1766
MS_PER_CACHED_TOKEN = 3.7e-5


def forward_ms(tokens: int, cached: int) -> float:
    return 5 + 0.0137 * tokens + MS_PER_CACHED_TOKEN * cached


def drafter_ms(requests: int) -> float:
    return 2 + 0.01 * requests


def sampled(batch: dict[str, int]) -> Any:
    """What a dummy run of the engine takes: as many requests as tokens, as far as there are so many."""
    tokens = batch["num_tokens"]
    requests = min(tokens, MAX_REQUESTS)
    context = min(batch["context_len"], MAX_MODEL_LEN - -(-tokens // requests))
    return SimpleNamespace(
        forward_ms=forward_ms(tokens, requests * context),
        drafter_ms=drafter_ms(requests),
        num_target_tokens=tokens,
        num_reqs=requests,
        full_cudagraph=tokens <= SIZES[-1],
    )


@pytest.fixture
def manager_type(monkeypatch: pytest.MonkeyPatch) -> Any:
    numpy = pytest.importorskip("numpy")
    numpy.zeros(1).sum()  # imports what lifted code may not
    monkeypatch.setattr(verification_costs, "_agreed", lambda value: value)
    alone = SimpleNamespace(broadcast_object=lambda given, **_: given)
    text = EngineText(
        root(),
        {
            "numpy": numpy,
            "vllm.envs": SimpleNamespace(VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN=8192),
            "vllm.distributed.parallel_state:get_tp_group": lambda: alone,
            f"{MANAGER}:logger": SimpleNamespace(debug=lambda *_: None),
        },
    )
    return text.part_of_class(f"{MANAGER}:AdaptiveVerificationManager", MEMBERS)


def started(manager_type: Any, timed: Callable[[Iterator[dict[str, int]]], list[Any]]) -> Any:
    """A manager whose costs were profiled; its requests were accepted at the rates."""
    import numpy as np

    manager = manager_type()
    manager.num_speculative_steps, manager.num_bonus_tokens = len(RATES), 1
    manager._max_total_logits, manager._stale_idx, manager.cost_tables = MAX_LOGITS, 0, None
    odds = [rate / before for rate, before in zip(RATES, (1.0, *RATES), strict=False)]
    manager._stale_confidences = [SimpleNamespace(np=np.tile(np.array(odds), (MAX_REQUESTS, 1)))]
    manager.req_states = SimpleNamespace(
        max_num_reqs=MAX_REQUESTS,
        max_num_batched_tokens=MAX_TOKENS,
        max_model_len=MAX_MODEL_LEN,
        req_id_to_index={str(at): at for at in range(MAX_REQUESTS)},
        num_computed_tokens_np=np.full(MAX_REQUESTS, 100),
        prefill_len=SimpleNamespace(np=np.full(MAX_REQUESTS, 32)),
    )
    manager.set_initial_cost_curves(timed(manager.batches_to_profile(SIZES)))
    return manager


def every_one(batches: Iterator[dict[str, int]]) -> list[Any]:
    return [sampled(batch) for batch in batches]


def drafts_chosen(manager: Any, requests: int, cached: int) -> int:
    manager.req_states.num_computed_tokens_np[:] = cached
    names = [str(at) for at in range(requests)]
    return int(manager.get_num_tokens(dict.fromkeys(names, 8), dict.fromkeys(names, [0] * 7))) - requests


def tokens_per_ms(requests: int, drafts: int, cached: int) -> float:
    """What a step yields on the device whose times are known, which pads to the next graph."""
    accepted = sum(sorted(RATES * requests, reverse=True)[:drafts])
    padded = min(size for size in SIZES if size >= requests + drafts)
    return (requests + accepted) / (drafter_ms(requests) + forward_ms(padded, requests * cached))


def best_drafts(requests: int, cached: int) -> int:
    """By trying every number of drafts."""
    most = min(requests * len(RATES), MAX_LOGITS - requests)
    return max(range(most + 1), key=lambda drafts: tokens_per_ms(requests, drafts, cached))


def test_the_engine_charges_a_draft_with_the_context_of_a_request_below_its_most_requests_and_none_above(
    manager_type: Any,
) -> None:
    """With 64 requests it verifies a fraction of what is best, and with 256 all that it can."""
    manager = started(manager_type, every_one)

    assert drafts_chosen(manager, 64, 100) < 2 * 64 < 4 * 64 < best_drafts(64, 100)
    assert best_drafts(256, 100) < 4 * 256 < drafts_chosen(manager, 256, 100) == MAX_LOGITS - 256


@pytest.mark.parametrize("cached", [40, 100, 1000, 4000])
@pytest.mark.parametrize("requests", [56, 64, 100, 128, 256, 400, 512])
def test_with_cached_tokens_charged_it_verifies_what_is_best(manager_type: Any, requests: int, cached: int) -> None:
    charge_cached_tokens(manager_type, frozenset(SIZES))
    manager = started(manager_type, every_one)
    before = manager.cost_tables[0].copy()
    chosen = drafts_chosen(manager, requests, cached)
    best = tokens_per_ms(requests, best_drafts(requests, cached), cached)

    assert manager.servespec_ms_per_cached_token == pytest.approx(MS_PER_CACHED_TOKEN)
    assert tokens_per_ms(requests, chosen, cached) == pytest.approx(best, rel=2e-3)
    assert list(manager.cost_tables[0]) == list(before), "what a step was charged with is gone after it"


def test_a_longer_context_verifies_no_less(manager_type: Any) -> None:
    """Attention is paid with or without drafts, so that they cost a smaller share."""
    charge_cached_tokens(manager_type, frozenset(SIZES))
    manager = started(manager_type, every_one)
    chosen = [drafts_chosen(manager, 256, cached) for cached in (40, 100, 1000, 4000)]

    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_a_step_that_was_not_timed_is_told(manager_type: Any) -> None:
    charge_cached_tokens(manager_type, frozenset(SIZES))

    with pytest.raises(RuntimeError, match="`load_aware` cannot be served"):
        started(manager_type, lambda batches: every_one(batches)[1:])


def test_a_device_that_times_noise_alone_pays_nothing_for_context(manager_type: Any) -> None:
    def shrinking(batches: Iterator[dict[str, int]]) -> list[Any]:
        found = every_one(batches)
        for at, one in enumerate(found):
            one.forward_ms = 5.0 - at / 1000
        return found

    charge_cached_tokens(manager_type, frozenset(SIZES))
    assert started(manager_type, shrinking).servespec_ms_per_cached_token == 0.0
