"""Requests that a bench makes or a prediction plays, and what keeps a server from taking them."""

from collections.abc import Iterator
from dataclasses import dataclass

from servespec.diagnostics import Diagnostic, Place, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficAsked:
    """Of each load how many requests are under way at a time; of each of those its prompt, its answer, how many."""

    concurrencies: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    prompts_per_request: int

    @property
    def tokens_per_request(self) -> int:
        return self.input_tokens + self.output_tokens


def traffic_findings(
    traffic: TrafficAsked, max_model_len: int | None, max_num_seqs: int, rule: Rule
) -> Iterator[Diagnostic]:
    """Faults by ``rule``, each with the option that says it."""
    numbers = {
        "--input-tokens": traffic.input_tokens,
        "--output-tokens": traffic.output_tokens,
        "--prompts": traffic.prompts_per_request,
        **{f"--concurrency {one}": one for one in traffic.concurrencies},
    }
    for option, number in numbers.items():
        yield from positive(option, number, rule)
    concurrency, most = Place("--concurrency"), max(traffic.concurrencies, default=0)
    if len(set(traffic.concurrencies)) < len(traffic.concurrencies):
        yield rule.at(concurrency, "a concurrency is named twice", "name each once")
    needed = traffic.tokens_per_request
    if max_model_len is not None and needed > max_model_len:
        message = f"requests of {needed} tokens are longer than `model.max_model_len` {max_model_len}"
        yield rule.at(Place("--input-tokens"), message, "shorten them, or raise `model.max_model_len`")
    if most > max_num_seqs:
        message = f"concurrency {most} is above `scheduler.max_num_seqs` {max_num_seqs}"
        help_text = "the rest would wait in the queue: lower it, or raise `scheduler.max_num_seqs`"
        yield rule.at(concurrency, message, help_text)


def positive(option: str, number: int, rule: Rule) -> Iterator[Diagnostic]:
    if number < 1:
        yield rule.at(Place(option), f"`{option}` is `{number}`", "write 1 or more")
