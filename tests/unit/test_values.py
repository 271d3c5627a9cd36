"""Values as people write them: what is taken, and what is answered to the rest."""

import math

import pytest

from servespec.schema.values import Refusal, parse_boolean, parse_bytes, parse_count, parse_fraction


@pytest.mark.parametrize(
    ("value", "size_bytes"),
    [
        (0, 0), (5, 5), (1e9, 10**9), ("512", 512), ("1_000", 1000), ("10B", 10),
        ("4kB", 4000), ("4KB", 4000), ("4KiB", 4096), ("512MiB", 512 * 2**20), ("141GB", 141 * 10**9),
        ("4GiB", 4 * 2**30), ("1.5GiB", 3 * 2**29), (".5GiB", 2**29), ("0.1GB", 10**8), ("10 GB", 10**10),
        (" 2TiB ", 2**41), ("2TB", 2 * 10**12), (2**63 - 1, 2**63 - 1),
    ],
)  # fmt: skip
def test_sizes(value: object, size_bytes: int) -> None:
    assert parse_bytes(value) == size_bytes


SIZE_FORM = "a number of bytes, or a size such as `4GiB` (2^30) or `4GB` (10^9)"


@pytest.mark.parametrize(
    ("value", "reason", "right_form"),
    [
        ("4G", "`G` can mean more than one size", "`4GiB` (2^30) or `4GB` (10^9)"),
        ("4g", "`g` can mean more than one size", "`4GiB` (2^30) or `4GB` (10^9)"),
        ("4Gb", "`Gb` can mean more than one size", "`4GiB` (2^30) or `4GB` (10^9)"),
        ("4gb", "`gb` can mean more than one size", "`4GiB` (2^30) or `4GB` (10^9)"),
        ("1.5gib", "`gib` can mean more than one size", "`1.5GiB` (2^30) or `1.5GB` (10^9)"),
        ("4M", "`M` can mean more than one size", "`4MiB` (2^20) or `4MB` (10^6)"),
        ("4k", "`k` can mean more than one size", "`4KiB` (2^10) or `4KB` (10^3)"),
        ("4T", "`T` can mean more than one size", "`4TiB` (2^40) or `4TB` (10^12)"),
        ("4X", "`X` is not a unit of size", SIZE_FORM),
        ("4b", "`b` is not a unit of size", SIZE_FORM),
        ("90%", "`%` is not a unit of size", SIZE_FORM),
        (-1, "the number is negative", SIZE_FORM),
        ("-4GiB", "the number is negative", SIZE_FORM),
        (1.5, "the value is not a whole number of bytes", SIZE_FORM),
        ("1.0001kB", "the value is not a whole number of bytes", SIZE_FORM),
        (2**63, "the number is larger than the engine's integers", SIZE_FORM),
        ("99999999TiB", "the number is larger than the engine's integers", SIZE_FORM),
        ("", "the value is empty", SIZE_FORM),
        ("  ", "the value is empty", SIZE_FORM),
        ("nan", "the text is not a number", SIZE_FORM),
        ("GiB", "the text is not a number", SIZE_FORM),
        (".GiB", "the text is not a number", SIZE_FORM),
        ("4GiB 3", "the text is not a number", SIZE_FORM),
        ("٤GiB", "the text is not a number", SIZE_FORM),
        ("1" * 65, "the text is too long for a number", SIZE_FORM),
        ("1,024", "a comma separates the digits", "`1024` or `1_024`"),
        ("1,5", "a comma stands for the decimal point", "`1.5`"),
        (math.nan, "the number is not finite", SIZE_FORM),
        (math.inf, "the number is not finite", SIZE_FORM),
        (True, "a boolean is not a number", SIZE_FORM),
        (None, "null is not a number", SIZE_FORM),
        ([4], "a list is not a number", SIZE_FORM),
        ({}, "a mapping is not a number", SIZE_FORM),
    ],
)
def test_refused_sizes(value: object, reason: str, right_form: str) -> None:
    assert parse_bytes(value) == Refusal(reason, right_form)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0), (8, 8), (1024.0, 1024), ("8192", 8192), ("1_024", 1024), ("8k", 8000), ("8K", 8192),
        ("25.6k", 25600), ("1.0K", 1024), ("2m", 2_000_000), ("2M", 2 * 2**20), ("1g", 10**9), ("1G", 2**30),
        ("1t", 10**12), ("1T", 2**40), ("+3", 3),
    ],
)  # fmt: skip
def test_counts(value: object, count: int) -> None:
    actual = parse_count(value)

    assert (type(actual), actual) == (int, count)


COUNT_FORM = "a whole number, such as `8192`"


@pytest.mark.parametrize(
    ("value", "reason", "right_form"),
    [
        ("1,024", "a comma separates the digits", "`1024` or `1_024`"),
        (1.5, "the value is not a whole number", COUNT_FORM),
        ("0.0001k", "the value is not a whole number", COUNT_FORM),
        (True, "a boolean is not a number", COUNT_FORM),
        (-3, "the number is negative", COUNT_FORM),
        ("-3", "the number is negative", COUNT_FORM),
        ("many", "the text is not a number", COUNT_FORM),
        (
            "8q",
            "`q` is not a suffix of a count",
            "a whole number, `8k` for 8000 or `8K` for 8192, as in the engine",
        ),
        (
            "8%",
            "`%` is not a suffix of a count",
            "a whole number, `8k` for 8000 or `8K` for 8192, as in the engine",
        ),
        (
            "1.5K",
            "a fraction of `K` (a power of two) is not a round count",
            "`1.5k` with a decimal suffix, or the whole number itself",
        ),
        (math.nan, "the number is not finite", COUNT_FORM),
        (None, "null is not a number", COUNT_FORM),
        (10**60, "the number is larger than the engine's integers", COUNT_FORM),
    ],
)
def test_refused_counts(value: object, reason: str, right_form: str) -> None:
    assert parse_count(value) == Refusal(reason, right_form)


@pytest.mark.parametrize(
    ("value", "fraction"),
    [
        (0.9, 0.9),
        (1, 1.0),
        (1.0, 1.0),
        ("90%", 0.9),
        ("92.5 %", 0.925),
        (".9", 0.9),
        ("100%", 1.0),
        ("0.1", 0.1),
    ],
)
def test_fractions(value: object, fraction: float) -> None:
    actual = parse_fraction(value)

    assert (type(actual), actual) == (float, fraction)


FRACTION_FORM = "a fraction above 0 and up to 1, such as `0.9` or `90%`"


@pytest.mark.parametrize(
    ("value", "reason", "right_form"),
    [
        (90, "the value is above 1", "`90%` or `0.9`"),
        ("92.5", "the value is above 1", "`92.5%` or `0.925`"),
        (100, "the value is above 1", "`100%` or `1`"),
        (20, "the value is above 1", "`20%` or `0.2`"),
        (1.1, "the value is above 1", FRACTION_FORM),
        (19.9, "the value is above 1", FRACTION_FORM),
        ("0,9", "a comma stands for the decimal point", "`0.9`"),
        (0, "the value is not above 0 and up to 1", FRACTION_FORM),
        ("0%", "the value is not above 0 and up to 1", FRACTION_FORM),
        ("150%", "the value is not above 0 and up to 1", FRACTION_FORM),
        (101, "the value is not above 0 and up to 1", FRACTION_FORM),
        (-0.5, "the number is negative", FRACTION_FORM),
        ("0.9GiB", "`GiB` is not a suffix of a fraction", FRACTION_FORM),
        (math.nan, "the number is not finite", FRACTION_FORM),
        (False, "a boolean is not a number", FRACTION_FORM),
        ("", "the value is empty", FRACTION_FORM),
    ],
)
def test_refused_fractions(value: object, reason: str, right_form: str) -> None:
    assert parse_fraction(value) == Refusal(reason, right_form)


def test_booleans() -> None:
    assert parse_boolean(True) is True
    assert parse_boolean(False) is False


@pytest.mark.parametrize(
    ("value", "reason", "right_form"),
    [
        ("true", "text in quotes is not a boolean", "`true` without quotes"),
        ("False", "text in quotes is not a boolean", "`false` without quotes"),
        ("yes", "YAML 1.2 reads this word as text, not as a boolean", "`true`"),
        ("On", "YAML 1.2 reads this word as text, not as a boolean", "`true`"),
        ("off", "YAML 1.2 reads this word as text, not as a boolean", "`false`"),
        ("n", "YAML 1.2 reads this word as text, not as a boolean", "`false`"),
        ("maybe", "text is not a boolean", "`true` or `false`"),
        ("", "text is not a boolean", "`true` or `false`"),
        (1, "a number is not a boolean", "`true` or `false`"),
        (0.0, "a number is not a boolean", "`true` or `false`"),
        (None, "null is not a boolean", "`true` or `false`"),
        ([], "a list is not a boolean", "`true` or `false`"),
    ],
)
def test_refused_booleans(value: object, reason: str, right_form: str) -> None:
    assert parse_boolean(value) == Refusal(reason, right_form)
