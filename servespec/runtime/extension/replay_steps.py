"""Runs one batch in the engine, with graphs or eagerly, and keeps what came out of each step.

A run starts from the prompts, which are always run eagerly, so that every run of a batch finds the same KV.  An eager
run goes on with the hidden states of the run with graphs once its own are kept: so the drafter and the next step have
the same inputs in both, and a difference shows in the output where it arises.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.replay_batches import chosen_drafts
from servespec.runtime.extension.replay_eager import GraphSwitch
from servespec.runtime.extension.step_batches import Batch, generated_tokens
from servespec.runtime.extension.step_engine import StepEngine
from servespec.runtime.extension.step_requests import Request, decoding_requests, starting_requests, step_output

_LARGEST_ON_DEVICE_BYTES: Final = 64 << 20
"""An output beyond it is kept in host memory: the KV cache leaves little room on the device."""

Continuations = Mapping[str, Sequence[int]]
Tensors = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What one step brought forth, rows of padding left out.

    ``handed_on`` are the target's hidden and auxiliary hidden states with their padding, for another run to go on
    with.  ``accepted`` counts drafts.
    """

    replayed: tuple[CapturedShape, ...]
    target: Tensors
    drafter: Tensors
    handed_on: tuple[Any, Any]
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a batch; ``emitted`` are the tokens of each request, the one after its prompt first."""

    steps: tuple[StepRecord, ...]
    emitted: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ReplayEngine(StepEngine):
    """An engine under a switch between graphs and eager."""

    switch: GraphSwitch

    def run(self, batch: Batch, continuations: Continuations, graphs: Run | None = None) -> Run:
        """With graphs; or eagerly, with the hidden states of the run ``graphs`` handed on."""
        decoding = decoding_requests(self.runner, len(batch.decodes), self.limits)
        starting = starting_requests(self.runner, batch, decoding)
        requests = {request.name: request for request in (*decoding, *starting)}
        with self.switch.eager():
            self.prefill(decoding, batch.next_drafts)
        steps = []
        for number in range(batch.steps):
            lengths = dict(zip((request.name for request in decoding), batch.decodes, strict=True))
            self._choose_drafts(decoding, batch.decodes, continuations, number)
            output = step_output(starting, lengths, requests, batch.next_drafts)
            forced = graphs.steps[number].handed_on if graphs is not None else None
            with self._mode(is_eager=graphs is not None):
                steps.append(self._step(output, requests, batch.next_drafts, forced))
        self.finish(requests)
        return Run(steps=tuple(steps), emitted={name: tuple(one.emitted) for name, one in requests.items()})

    def continuations(self, count: int) -> Continuations:
        """What each decoding request says without speculation, one token a step, eagerly and greedily."""
        requests = decoding_requests(self.runner, count, self.limits)
        by_name = {request.name: request for request in requests}
        with self.switch.eager():
            self.prefill(requests, next_drafts=0)
            for _ in range(generated_tokens(self.limits) - 1):
                self.advance(step_output((), dict.fromkeys(by_name, 1), by_name, 0), by_name)
        self.finish(by_name)
        return {name: tuple(request.emitted) for name, request in by_name.items()}

    def _mode(self, *, is_eager: bool) -> AbstractContextManager[None]:
        return self.switch.eager() if is_eager else nullcontext()

    def _choose_drafts(
        self, decoding: Sequence[Request], lengths: Sequence[int], continuations: Continuations, step: int
    ) -> None:
        """Accepted counts go from 0 to all drafts over the requests, and move on by one with each step."""
        import torch

        widest = max(lengths, default=1) - 1
        if widest == 0:
            return
        rows = []
        for number, (request, length) in enumerate(zip(decoding, lengths, strict=True)):
            wrong_from = (number + step) % length
            known = continuations.get(request.name, ())
            drafts = chosen_drafts(known, len(request.emitted), length - 1, wrong_from, self.runner.vocab_size)
            rows.append([*drafts, *[0] * widest][:widest])
        drafted = self.runner.req_states.draft_tokens
        index = torch.tensor([self.runner.req_states.req_id_to_index[request.name] for request in decoding])
        drafted[index.to(drafted.device), :widest] = torch.tensor(rows, dtype=drafted.dtype, device=drafted.device)

    def _step(self, output: Any, requests: Mapping[str, Request], next_drafts: int, forced: Any) -> StepRecord:
        self.switch.replayed.clear()
        self.execute(output, requests)
        state = self.runner.execute_model_state
        batch = state.input_batch
        sampled, counts = self._sampled(state)
        target = {**_hidden(state, batch.num_tokens), "sampled tokens": sampled, "accepted drafts": counts}
        handed_on = forced or (_kept(state.hidden_states), [_kept(one) for one in state.aux_hidden_states or ()])
        if forced is not None:
            self.runner.execute_model_state = _going_on_with(state, forced)
        self.sample(output, requests)
        return StepRecord(
            replayed=tuple(dict.fromkeys(self.switch.replayed)),
            target=target,
            drafter=dict(self._drafted(batch, next_drafts)),
            handed_on=handed_on,
            accepted=int((counts - 1).clamp(min=0).sum()),
        )

    def _sampled(self, state: Any) -> tuple[Any, Any]:
        """The tokens that the target's own hidden states bring forth, -1 where there are none, and how many."""
        import torch

        output, counts, _ = self.runner.sample(state.hidden_states, state.input_batch, None)
        tokens = output.sampled_token_ids
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return torch.where(places[None] < counts[:, None], tokens, -1), counts.clone()

    def _drafted(self, batch: Any, next_drafts: int) -> Iterator[tuple[str, Any]]:
        speculator, rows = self.runner.speculator, batch.idx_mapping
        if speculator is None or next_drafts == 0:
            return
        yield "draft tokens", self.runner.req_states.draft_tokens[rows, :next_drafts]
        logits = getattr(speculator, "draft_logits", None)
        if logits is not None:
            yield "draft logits", _kept(logits[rows, :next_drafts])
        hidden = getattr(speculator, "hidden_states", None)
        if hidden is not None:
            yield "draft hidden states", hidden[: batch.num_reqs].clone()


def _hidden(state: Any, tokens: int) -> dict[str, Any]:
    auxiliary = {
        f"auxiliary hidden states {number}": _kept(one[:tokens])
        for number, one in enumerate(state.aux_hidden_states or ())
    }
    return {"hidden states": _kept(state.hidden_states[:tokens]), **auxiliary}


def _going_on_with(state: Any, forced: tuple[Any, Any]) -> Any:
    hidden, auxiliary = forced
    device = state.hidden_states.device
    return state._replace(
        hidden_states=hidden.to(device),
        aux_hidden_states=[one.to(device) for one in auxiliary] if auxiliary else state.aux_hidden_states,
    )


def _kept(tensor: Any) -> Any:
    """A copy: a graph's output is overwritten by its next replay."""
    return tensor.clone() if tensor.nbytes <= _LARGEST_ON_DEVICE_BYTES else tensor.cpu()
