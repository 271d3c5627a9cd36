"""Writes a tokenizer that has text for every id of a model's vocabulary, for models with dummy weights.

usage: python benchmarks/dummy_tokenizer.py FOLDER...

Each FOLDER has a model's `config.json`; `tokenizer.json` and `tokenizer_config.json` are written beside it.  A model
with dummy weights answers with ids at random.  With a tokenizer that knows few of them most answers decode to
nothing, and a stream then decodes its answer anew with every token: the API server bounds what is measured.  Here a
byte is one token, which is how prompts are encoded, and every other id is a word of its own.
"""

import argparse
import json
from pathlib import Path

END = "<|end|>"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        config = json.loads((folder / "config.json").read_bytes())
        write_tokenizer(folder, ids=config["vocab_size"])
    return 0


def write_tokenizer(folder: Path, *, ids: int) -> None:
    """Writes the two files; ``ids`` is how many have text, from 257: the bytes and the end of an answer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
    if ids < len(words):
        raise ValueError(f"a vocabulary of {ids} has no place for {len(words)} tokens")
    space = "\u0120"
    words += [f"{space}{number}" for number in range(len(words), ids)]
    tokenizer = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "chat_template": "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
