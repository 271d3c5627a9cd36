"""The units of servespec, one NewType each.

Every name that holds a number ends in its unit:

=====================  ================================================================
suffix                 meaning
=====================  ================================================================
``_tokens``            tokens in one step, over all requests
``_requests``          requests in one step
``_tokens_per_request``  query length of one request in one step (q)
``_bytes``             bytes on one device; GiB exists only in ``render/``
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
