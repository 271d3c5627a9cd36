"""How a server of ours is spoken to from this machine."""

import os
import ssl
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, build_opener

from servespec.compiler.environment import SECRET_VARIABLES


def own_key() -> str | None:
    """What the server asks for: the key that the shell gives it, as it gives it to us."""
    return os.environ.get(SECRET_VARIABLES["api_key"]) or None


def unverified_context() -> ssl.SSLContext:
    """Its certificate names the public host, and is often signed by none that this machine knows."""
    return ssl._create_unverified_context()  # noqa: S323 - our own process answers, on this machine


def own_opener() -> OpenerDirector:
    """A proxy of the environment is not asked for what is on this machine."""
    return build_opener(ProxyHandler({}), HTTPSHandler(context=unverified_context()))
