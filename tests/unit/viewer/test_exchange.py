"""That both sides know the token is shown, and neither says it."""

from __future__ import annotations

import pytest

from viewer.server.exchange import is_nonce, is_proof, nonce, proof, token_at

TOKEN = "T" * 43


def test_a_proof_is_of_one_token_one_side_and_these_two_numbers() -> None:
    hello, answer = nonce(), nonce()
    right = proof(TOKEN, "page", hello, answer)
    others = [
        proof("U" * 43, "page", hello, answer),
        proof(TOKEN, "server", hello, answer),
        proof(TOKEN, "page", nonce(), answer),
        proof(TOKEN, "page", hello, nonce()),
        proof(TOKEN, "page", answer, hello),
    ]
    assert is_proof(right, proof(TOKEN, "page", hello, answer))
    assert not any(is_proof(other, right) for other in others)
    assert TOKEN not in right


@pytest.mark.parametrize("said", [None, "", "0" * 63, "0" * 65, 7, ["0" * 64], {"a": 1}, "ü" * 64, "\ud800" * 64])
def test_what_is_no_number_and_no_proof(said: object) -> None:
    assert not is_nonce(said)
    assert not is_proof(said, "0" * 64)


def test_each_place_has_a_token_of_its_own_that_stays_and_tells_nothing_of_the_others() -> None:
    at = [token_at("secret", place) for place in ("port 9999", "port 10000", "socket /tmp/a.sock")]
    assert len(set(at)) == 3
    assert at[0] == token_at("secret", "port 9999") != token_at("another", "port 9999")
    assert all(len(token) == 43 and token.replace("-", "").replace("_", "").isalnum() for token in at)
