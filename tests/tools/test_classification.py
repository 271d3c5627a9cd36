"""The lists of judgement: no name twice, and none that no version has."""

import pytest
from engine_facts import VERSIONS
from engine_reading import classification as judged

from servespec.compiler.facts import engine_fields as facts

TABLES = [facts.table(version) for version in VERSIONS]


@pytest.mark.parametrize("config", sorted(judged.FIELDS))
def test_a_field_is_in_one_list_and_some_version_has_it(config: str) -> None:
    split = judged.FIELDS[config]
    real = {name for table in TABLES if table.has_config(config) for name in table.config(config)}

    assert split.plan & split.other == frozenset()
    assert (split.plan | split.other) - real == frozenset()


def test_a_variable_is_in_one_list_and_some_version_reads_it() -> None:
    real = {name for table in TABLES for name in table.variables()}

    assert judged.VARIABLES.plan & judged.VARIABLES.other == frozenset()
    assert judged.OUTSIDE_VARIABLES.plan & judged.OUTSIDE_VARIABLES.other == frozenset()
    assert (judged.VARIABLES.plan | judged.VARIABLES.other) - real == frozenset()
    assert (judged.CODE_VARIABLES | judged.SECRET_VARIABLES) - real == frozenset()


def test_a_marked_field_or_flag_exists() -> None:
    fields = {f"{name}.{field}" for table in TABLES for name in table.configs() for field in table.config(name)}
    flags = {name for table in TABLES for name in table.flags()}

    assert (set(judged.CODE_FIELDS) | judged.SECRET_FIELDS) - fields == set()
    assert (judged.CODE_FLAGS | judged.FLAGS.plan | judged.FLAGS.other) - flags == set()


def test_an_unlisted_variable_is_unknown() -> None:
    assert judged.variable_verdict("VLLM_NEVER_SEEN") is None
    assert judged.variable_verdict("VLLM_ROCM_NEVER_SEEN") is False
