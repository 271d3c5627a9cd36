"""Remedies that take graph memory away."""

from enum import StrEnum


class GraphRemedy(StrEnum):
    """Remedies that take graph memory away, in force or not yet there; each changes the lines that it concerns."""

    WEAK_AUX_OUTPUTS = "weak_aux_outputs"
    ONE_CAPTURE_STREAM = "one_capture_stream"
    STEPWISE_DRAFT_LOGITS = "stepwise_draft_logits"
    INDEXER_ROW_CHUNKS = "indexer_row_chunks"
