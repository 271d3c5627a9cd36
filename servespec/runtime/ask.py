"""One chat question to a running server."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from servespec.diagnostics import Place, SpecError
from servespec.runtime.own_server import own_opener
from servespec.runtime.run_rules import ASK_FAILED

_ANSWER_TOKENS = 128
_MESSAGE_CHARACTERS = 200
_CHARACTERS_OF_A_HEADER = 256


def ask(
    base_url: str,
    question: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    max_tokens: int = _ANSWER_TOKENS,
    timeout_seconds: float = 120.0,
) -> str:
    """The answer to ``question``, greedily decoded; ``model`` None takes the first one that is served.

    Raises SpecError (L013) when the server refuses, fails or answers with something else.
    """
    if api_key and not _is_sendable(api_key):
        raise _failed(base_url, "the API key holds a line break, or a character that no header can hold")
    send = _Sender(base_url, api_key, timeout_seconds)
    try:
        name = model or send("/v1/models")["data"][0]["id"]
        body = {
            "model": name,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        content = send("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        said = error.read(_MESSAGE_CHARACTERS).decode("utf-8", "replace")
        raise _failed(base_url, f"HTTP {error.code}: {said}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _failed(base_url, str(error) or type(error).__name__) from error
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise _failed(base_url, "the answer has not the form of a chat completion") from error
    if not isinstance(content, str):
        raise _failed(base_url, "the answer holds no text")
    return content


def _is_sendable(key: str) -> bool:
    """Whether a header of HTTP can hold it.  Source: http.client: HTTPConnection.putheader."""
    return not {"\r", "\n"} & set(key) and all(ord(one) < _CHARACTERS_OF_A_HEADER for one in key)


class _Sender:
    """Requests to one server."""

    def __init__(self, base_url: str, api_key: str | None, timeout_seconds: float) -> None:
        self._base_url = base_url
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_seconds = timeout_seconds
        self._open = own_opener().open

    def __call__(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base_url + path, data, self._headers)  # noqa: S310 - http to our server
        with self._open(request, timeout=self._timeout_seconds) as response:
            return json.load(response)


def _failed(base_url: str, why: str) -> SpecError:
    message = f"`{base_url}` did not answer the question: {' '.join(why.split())}"
    return SpecError([ASK_FAILED.at(Place(base_url), message, "see the engine's log")])
