"""Speculative decoding resolved: method, K, tiers, and the drafter as the graphs see it.

Source: vllm/config/speculative.py: SpeculativeConfig.__post_init__; vllm/v1/worker/gpu/spec_decode/__init__.py:
init_speculator.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from servespec.compiler import plan_rules as rules
from servespec.compiler.facts.draft_methods import METHOD_ARCHITECTURES
from servespec.compiler.facts.mtp_layers import GEMMA4_DRAFTERS, is_mtp_drafter
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.tiers import Tier, tiers_up_to
from servespec.compiler.model import Model
from servespec.diagnostics import Diagnostic
from servespec.provenance import Origin, Resolved
from servespec.schema.source import SpecSource
from servespec.schema.spec import SpeculativeSection
from servespec.units import Requests, TokensPerRequest

_MTP_SUFFIX = "_mtp"
_EAGER_METHODS = ("ngram", "ngram_gpu", "draft_model", "extract_hidden_states", "suffix", "custom_class")
_ENGINE_TIERS = "num_speculative_tokens_per_batch_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What drafts, and how wide. ``query_len`` is the drafter's block; 1 where it has none.

    ``ranges`` are the tiers: inclusive (first, last, K), the last open where the spec leaves it so; empty without.
    """

    method: Resolved[str | None]
    num_speculative_tokens: Resolved[int]
    kind: DrafterKind
    query_len: TokensPerRequest
    ranges: tuple[tuple[int, int | None, int], ...]
    sample_from_anchor: bool = True
    findings: tuple[Diagnostic, ...] = ()

    def schedule(self, max_num_seqs: Requests) -> tuple[tuple[int, int, int], ...]:
        """The engine's notation of the tiers; an open end closes at ``max_num_seqs``."""
        return tuple((first, max(first, max_num_seqs) if last is None else last, k) for first, last, k in self.ranges)

    def tiers(self, max_num_seqs: Requests) -> tuple[Tier, ...]:
        if not self.ranges:
            return ()
        return tiers_up_to(self.schedule(max_num_seqs), max_num_seqs, self.num_speculative_tokens.value)


NO_DRAFTING = Drafting(
    method=Resolved(None, Origin.DERIVED, "no speculative section"),
    num_speculative_tokens=Resolved(0, Origin.DERIVED, "no speculative section"),
    kind=DrafterKind.NONE,
    query_len=TokensPerRequest(1),
    ranges=(),
)


def resolve_drafting(
    section: SpeculativeSection | None,
    draft: Model | None,
    source: SpecSource,
) -> Drafting:
    """The drafting of a spec. ``draft`` is the drafting model, None where it is not known."""
    if section is None:
        return NO_DRAFTING
    method = _method(section, draft)
    drafts = _num_speculative_tokens(section, draft, method.value)
    k = drafts.value if drafts is not None else 1
    anchor = draft is None or draft.sample_from_anchor
    return Drafting(
        method=method,
        num_speculative_tokens=drafts or Resolved(k, Origin.DERIVED, "unknown"),
        kind=_kind(method.value, draft, k),
        query_len=_query_len(method.value, anchor, k),
        ranges=_ranges(section),
        sample_from_anchor=anchor,
        findings=tuple(_draft_findings(section, draft, method.value, drafts, source)),
    )


def _method(section: SpeculativeSection, draft: Model | None) -> Resolved[str | None]:
    written = section.method
    if written is None:
        return Resolved(_inferred_method(section, draft), Origin.DERIVED, "inferred from the draft model")
    return Resolved("mtp" if written.endswith(_MTP_SUFFIX) else written, Origin.SPEC, "set in the spec")


def _inferred_method(section: SpeculativeSection, draft: Model | None) -> str:
    """What the engine makes of a draft model's name and architecture."""
    name = (section.model or "").lower()
    if name in ("ngram", "[ngram]"):
        return "ngram"
    architectures = draft.traits.architectures if draft else ()
    for part, method in (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark")):
        own = METHOD_ARCHITECTURES.get(method)
        if part in name or (own is not None and not own.value.isdisjoint(architectures)):
            return method
    if draft is None:
        return "draft_model"
    model_type = draft.traits.model_type or ""
    if model_type.endswith(_MTP_SUFFIX) or model_type == "mtp" or is_mtp_drafter(draft.config):
        return "mtp"
    return "draft_model"


def _num_speculative_tokens(
    section: SpeculativeSection, draft: Model | None, method: str | None
) -> Resolved[int] | None:
    if section.num_speculative_tokens is not None:
        return Resolved(section.num_speculative_tokens, Origin.SPEC, "set in the spec")
    if draft is None:
        return None
    if method == "dspark" and draft.block_size is not None:
        return Resolved(draft.block_size, Origin.ENGINE_DEFAULT, "the drafter's block size")
    if method != "dspark" and draft.draft_tokens:
        return Resolved(draft.draft_tokens, Origin.ENGINE_DEFAULT, "one draft for each module of the draft model")
    return None


def _draft_findings(
    section: SpeculativeSection,
    draft: Model | None,
    method: str | None,
    drafts: Resolved[int] | None,
    source: SpecSource,
) -> Iterator[Diagnostic]:
    place = source.place_of_key(("speculative",))
    if drafts is None:
        most = max((one.num_speculative_tokens for one in section.written_tiers), default=3)
        help_text = f"write `num_speculative_tokens: {most}`{'' if section.written_tiers else ', or another K'}"
        yield rules.R107.at(place, "`speculative.num_speculative_tokens` is missing", help_text)
        return
    k_place = source.place_of(("speculative", "num_speculative_tokens"))
    least = least_drafts(method, draft, drafts.value)
    if drafts.value != least:
        assert draft is not None
        assert draft.draft_tokens
        message = f"K is `{drafts.value}`, not a multiple of the {draft.draft_tokens} MTP modules"
        help_text = f"write `{least - draft.draft_tokens}` or `{least}`"
        yield rules.R109.at(k_place, message, help_text)
    block = draft.block_size if draft else None
    if method == "dflash" and block == drafts.value:
        message = f"K is `{drafts.value}`, the drafter's block size"
        yield rules.R110.at(k_place, message, f"write `{drafts.value - 1}`: a block is the bonus token and K drafts")
    if (
        section.engine_fields.get("enforce_eager") is True
        and _kind(method, draft, drafts.value) is not DrafterKind.EAGER
    ):
        eager_place = source.place_of_key(("speculative", "enforce_eager"))
        yield rules.R113.at(
            eager_place, "`speculative.enforce_eager` has no effect on the drafter's graphs", "delete it"
        )
    if draft is None and method not in _EAGER_METHODS:
        message = f"the draft model of `{method}` is planned without its config"
        yield rules.R111.at(place, message, "pass `--draft-config FILE` for its layout")


def least_drafts(method: str | None, draft: Model | None, drafts: int) -> int:
    """The least K that makes so many drafts: above the modules of the draft model, a multiple of them.

    Source: vllm/config/speculative.py: SpeculativeConfig.__post_init__.
    """
    modules = draft.draft_tokens if draft else None
    if method in ("dspark", *_EAGER_METHODS) or not modules or drafts <= modules:
        return drafts
    return -(-drafts // modules) * modules


def _kind(method: str | None, draft: Model | None, k: int) -> DrafterKind:
    if method is None or method in _EAGER_METHODS:
        return DrafterKind.EAGER
    if method in ("dflash", "dspark"):
        return DrafterKind.BLOCK
    if method == "mtp" and not _is_gemma4(draft) and min(_modules(draft), k) > 1:
        return DrafterKind.MULTI_MODULE_MTP
    return DrafterKind.AUTOREGRESSIVE


def _modules(draft: Model | None) -> int:
    return draft.mtp_modules if draft else 1


def _is_gemma4(draft: Model | None) -> bool:
    return draft is not None and draft.traits.model_type in GEMMA4_DRAFTERS.value


def _query_len(method: str | None, sample_from_anchor: bool, k: int) -> TokensPerRequest:
    """DSpark's anchor is its first prediction; the others need a query for the bonus token too."""
    if method == "dspark" and sample_from_anchor:
        return TokensPerRequest(k)
    return TokensPerRequest(k + 1)


def _ranges(section: SpeculativeSection) -> tuple[tuple[int, int | None, int], ...]:
    if section.written_tiers:
        return tuple(_tier_ranges(section))
    written = section.engine_fields.get(_ENGINE_TIERS)
    return tuple((first, last, k) for first, last, k in written) if isinstance(written, list) else ()


def _tier_ranges(section: SpeculativeSection) -> Iterator[tuple[int, int | None, int]]:
    first = 1
    for tier in section.written_tiers:
        yield (first, tier.up_to, tier.num_speculative_tokens)
        first = (tier.up_to or 0) + 1
