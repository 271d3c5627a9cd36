"""A tokenizer for dummy weights: a byte is a token, and every id of the vocabulary has text of its own."""

import json
import sys
from pathlib import Path

import dummy_tokenizer
import pytest

tokenizers = pytest.importorskip("tokenizers")

IDS = 1000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": IDS}), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["dummy_tokenizer.py", str(tmp_path)])
    assert dummy_tokenizer.main() == 0
    return tmp_path


def test_every_id_has_text_and_bytes_come_back(folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    words = [tokenizer.decode([number], skip_special_tokens=False) for number in range(256, IDS)]
    said = "Köln, 3 °C\n"
    ids = tokenizer.encode(said).ids

    assert tokenizer.get_vocab_size() == IDS
    assert len(set(words)) == IDS - 256
    assert all(words)
    assert (len(ids), tokenizer.decode(ids)) == (len(said.encode()), said)


def test_the_end_of_an_answer_is_a_token_of_the_tokenizer(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_bytes())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    assert tokenizer.token_to_id(settings["eos_token"]) == 256


def test_a_vocabulary_with_no_place_for_the_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="256 has no place for 257 tokens"):
        dummy_tokenizer.write_tokenizer(tmp_path, ids=256)
