"""The units of servespec, one NewType each.

Every name that holds a number ends in its unit:

=====================  ================================================================
suffix                 meaning
=====================  ================================================================
``_tokens``            tokens in one step, over all requests
``_requests``          requests in one step
``_tokens_per_request``  query length of one request in one step (q)
``_bytes``             bytes on one device; :func:`size_words` says them to a person
``_seconds``           wall-clock seconds
=====================  ================================================================
"""

from typing import NewType

Tokens = NewType("Tokens", int)
Requests = NewType("Requests", int)
TokensPerRequest = NewType("TokensPerRequest", int)
Bytes = NewType("Bytes", int)


def tokens_of(requests: Requests, query_len: TokensPerRequest) -> Tokens:
    """Tokens in a uniform step of ``requests`` requests at ``query_len`` tokens each."""
    return Tokens(requests * query_len)


def size_words(size_bytes: int) -> str:
    """A size in a message: `4.1 GiB`, `258.0 MiB`, `0 bytes`; a unit is 1,024 of the one below it."""
    for unit, exponent in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << exponent:
            return f"{size_bytes / (1 << exponent):.1f} {unit}"
    return f"{size_bytes} bytes"
