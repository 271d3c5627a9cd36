"""Benches one spec's ways to the engine against each other: interleaved pairs, with vLLM's own bench client."""
