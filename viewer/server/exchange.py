"""How a page and its server show each other that they know the page's token, without saying it. Pure but for `nonce`.

::

    page → server   {"hello": HELLO}                        HELLO, NONCE: 32 random bytes each, in hex
    server → page   {"nonce": NONCE, "proof": HMAC("server", HELLO, NONCE)}
    page → server   {"proof": HMAC("page", HELLO, NONCE)}

The server comes first: a page that went on asking a port which somebody else has taken tells that one nothing. Each
place has a token of its own (`token_at`): whoever took one viewer's port, and hands on what is said to another viewer
of the account at another port, is answered there with another token's proof.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import Literal

_NONCE = re.compile(r"[0-9a-f]{64}")


def token_at(secret: str, place: str) -> str:
    """The token of the page that is served at `place`, from the account's secret; 256 bits, as 43 letters for a URL."""
    made = hmac.new(secret.encode(), f"anchorleg viewer at {place}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def nonce() -> str:
    """A number that nobody has said before."""
    return secrets.token_hex(32)


def is_nonce(said: object) -> bool:
    """Whether it is one, as far as its form tells."""
    return isinstance(said, str) and _NONCE.fullmatch(said) is not None


def proof(token: str, side: Literal["server", "page"], hello: str, answer: str) -> str:
    """What only who knows the token can say of these two numbers. A `side`'s proof is not the other's."""
    said = f"anchorleg viewer {side} {hello} {answer}"
    return hmac.new(token.encode(), said.encode(), hashlib.sha256).hexdigest()


def is_proof(said: object, right: str) -> bool:
    """Whether that is the proof; how long the comparison takes tells nothing of it."""
    return isinstance(said, str) and hmac.compare_digest(said.encode(errors="replace"), right.encode())
