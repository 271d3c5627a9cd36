"""Steps of a server played one by one: by hand where they can be counted, else by what must hold of any traffic."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servespec.compiler.curves.closed_loop import Served, StepTimes, Traffic, conditional, served
from servespec.compiler.curves.mixed_steps import MixedSteps
from servespec.compiler.curves.step_curve import StepCurve, TimedPoint, step_curve
from servespec.compiler.curves.tiers import Candidate
from servespec.runtime.traffic_dice import new_dice
from servespec.units import Requests, Tokens

RATES = (0.8, 0.6, 0.4)


def flat(seconds: float, last: int = 512) -> StepCurve:
    curve = step_curve(TimedPoint(size=size, seconds=seconds) for size in (1, last))
    assert curve is not None
    return curve


def rising(seconds: float, last: int) -> StepCurve:
    curve = step_curve(TimedPoint(size=size, seconds=seconds * (1 + size / 64)) for size in (1, 8, 64, last))
    assert curve is not None
    return curve


def mixed(target: StepCurve) -> MixedSteps:
    """All of it is the target's, whatever is sampled or drafted."""
    nothing = step_curve([TimedPoint(size=1, seconds=1e-12), TimedPoint(size=4096, seconds=1e-12)])
    assert nothing is not None
    return MixedSteps(target=target, drafter=None, sampling={0: nothing}, drafting={}, drafts=0, requests=1)


def play(
    clients: int,
    requests: int,
    prompt: int,
    answer: int,
    *,
    k: int = 0,
    rates: tuple[float, ...] = (),
    budget: int = 64,
    front_end: float = 0.0,
) -> Served:
    """Decodes take a second, steps with prompts two."""
    times = StepTimes(decode={k: flat(1.0)}, mixed=mixed(flat(2.0)), budget_tokens=Tokens(budget))
    load = replace(traffic(clients, requests, prompt, answer), front_end_seconds=front_end)
    return served(load, times, rates, lambda _: k, new_dice())


def traffic(clients: int, requests: int, prompt: int, answer: int) -> Traffic:
    return Traffic(clients=Requests(clients), requests=Requests(requests), input_tokens=prompt, output_tokens=answer)


@pytest.mark.parametrize(
    ("found", "tokens_per_second", "decode_steps", "mixed_steps"),
    [
        # The step of a prompt gives the first token.
        (play(1, 1, 4, 3), 3 / 4, 2, 1),
        (play(1, 2, 4, 3), 6 / 8, 4, 2),
        # Both prompts in one step, and both answers in the same ones.
        (play(2, 2, 4, 3), 6 / 4, 2, 1),
        # 2 + 2 + 1 tokens after the first: the last step accepts more than is wanted.
        (play(1, 1, 4, 6, k=1, rates=(1.0,)), 6 / 5, 3, 1),
        (play(1, 1, 4, 6, k=1, rates=(0.0,)), 6 / 7, 5, 1),
        # 10 tokens in chunks of 4.
        (play(1, 1, 10, 1, budget=4), 1 / 6, 0, 3),
        # Each waits five seconds for the front end, and the engine with it.
        (play(1, 2, 4, 3, front_end=5.0), 6 / 18, 4, 2),
        # Both pass it together after ten; the third is sent when they are answered.
        (play(2, 3, 4, 3, front_end=5.0), 9 / 23, 4, 2),
        # The first two end at 10, when the third is sent; it passes while nothing runs.
        (play(2, 3, 4, 3, front_end=3.0), 9 / 17, 4, 2),
        # One prompt fits beside nothing, the other one beside a decode.
        (play(2, 2, 4, 2, budget=5), 4 / 5, 1, 2),
    ],
)
def test_steps_that_can_be_counted(
    found: Served, tokens_per_second: float, decode_steps: int, mixed_steps: int
) -> None:
    assert found.tokens_per_second == pytest.approx(tokens_per_second)
    assert (found.decode_steps, found.mixed_steps) == (decode_steps, mixed_steps)


def test_a_step_of_several_query_lengths_is_a_mixed_one() -> None:
    """Two requests begin with one draft each; the second prompt waits for the first one's step."""
    times = StepTimes(decode={0: flat(1.0), 1: flat(1.0)}, mixed=mixed(flat(2.0)), budget_tokens=Tokens(4))

    found = served(traffic(2, 2, 4, 3), times, (1.0,), lambda requests: 1 if requests == 1 else 0, new_dice())

    # Prompt; prompt less what the decode takes; its rest beside the last decode; then a decode of one request.
    assert (found.decode_steps, found.mixed_steps) == (1, 3)


def test_what_is_sent_while_the_front_end_is_busy_passes_after_it() -> None:
    """Prompts of one step each end one after the other, and the front end takes longer than a step of both."""
    found = play(2, 4, 4, 1, budget=4, front_end=2.5)

    # Both pass at 5; steps to 7 and 9. The third, sent at 7, passes at 9.5, the fourth, sent at 9, at 12.
    assert found.tokens_per_second == pytest.approx(4 / 14)
    assert (found.decode_steps, found.mixed_steps) == (0, 4)


def test_what_does_not_fit_a_step_is_drafted_shorter_or_waits() -> None:
    """Three requests with three drafts each in a step of six tokens: four, two, none."""
    times = StepTimes(decode={3: flat(1.0)}, mixed=mixed(flat(2.0)), budget_tokens=Tokens(6))

    found = served(traffic(3, 3, 2, 9), times, (1.0, 1.0, 1.0), lambda _: 3, new_dice())

    # All prompts; 4 + 2 tokens, twice, which ends the first; the second one's last 4 and 2 of the third's; its last 6.
    assert (found.decode_steps, found.mixed_steps) == (2, 4)


def test_parts_of_a_mixed_step_follow_its_own_requests_and_drafts() -> None:
    """Timed with five requests of seven drafts: step 0 took 2 of 8 seconds, each later draft one."""
    drafting = {1: flat(2.0), 7: rising_by_requests(2.0, 6.0)}
    steps = MixedSteps(
        target=flat(10.0), drafter=flat(8.0), sampling={0: flat(0.5), 7: flat(0.7)}, drafting=drafting,
        drafts=7, requests=5,
    )  # fmt: skip

    assert steps.seconds(100, 5, 7, 7) == pytest.approx(10 + 0.7 + 8)
    assert steps.seconds(100, 5, 0, 1) == pytest.approx(10 + 0.5 + 2)
    assert steps.seconds(100, 5, 0, 0) == pytest.approx(10 + 0.5 + 2)
    assert steps.seconds(100, 10, 7, 3) == pytest.approx(10 + 0.7 + 2 + 2 * 2)
    assert steps.seconds(100, 400, 7, 3) == steps.seconds(100, 10, 7, 3)
    assert replace(steps, drafter=None).seconds(100, 10, 0, 0) == pytest.approx(10 + 0.5)


def rising_by_requests(step0: float, later: float) -> StepCurve:
    """``later`` seconds of six later steps with five requests, twice that with ten."""
    curve = step_curve([TimedPoint(size=5, seconds=step0 + later), TimedPoint(size=10, seconds=step0 + 2 * later)])
    assert curve is not None
    return curve


def test_long_answers_come_at_the_speed_of_a_steady_batch() -> None:
    steps = rising(0.01, 512)
    times = StepTimes(decode={3: steps}, mixed=mixed(rising(0.01, 4096)), budget_tokens=Tokens(4096))

    found = served(traffic(16, 16, 32, 4000), times, RATES, lambda _: 3, new_dice())

    steady = Candidate(num_speculative_tokens=3, tokens_per_step=1 + sum(RATES), steps=steps).tokens_per_second(16)
    assert found.tokens_per_second == pytest.approx(steady, rel=0.05)


def test_chances_are_of_those_that_came_so_far() -> None:
    assert conditional((0.8, 0.6, 0.0, 0.0)) == pytest.approx((0.8, 0.75, 0.0, 0.0))


@settings(max_examples=100)
@given(
    clients=st.integers(1, 12),
    rounds=st.integers(1, 3),
    prompt=st.integers(1, 100),
    answer=st.integers(1, 30),
    k=st.integers(0, 3),
    budget=st.integers(64, 200),
)
def test_what_holds_of_any_traffic(clients: int, rounds: int, prompt: int, answer: int, k: int, budget: int) -> None:
    load = traffic(clients, clients * rounds, prompt, answer)

    def at(scale: float) -> Served:
        times = StepTimes(
            decode={k: rising(scale, 16)}, mixed=mixed(rising(2 * scale, 256)), budget_tokens=Tokens(budget)
        )
        return served(load, times, RATES, lambda _: k, new_dice())

    one, slower = at(1.0), at(2.0)

    assert one == at(1.0)
    assert slower.tokens_per_second == pytest.approx(one.tokens_per_second / 2)
    assert (slower.decode_steps, slower.mixed_steps) == (one.decode_steps, one.mixed_steps)
    assert one.mixed_steps >= ceil(clients * rounds * prompt / budget)
    assert one.decode_steps <= rounds * clients * (answer - 1)
    assert one.decode_steps + one.mixed_steps >= rounds * (1 + ceil((answer - 1) / (1 + k)))
