"""What connects to the port of a head's guard: only a guard with the key of the job is accepted, and whatever else is
sent ends in the error for it."""

from __future__ import annotations

import json
import secrets
from random import Random

from tests.fuzz.cases import FUZZER, Cases
from tfctl.node.guard import keys, link

pytestmark = FUZZER

KEY, RUN, HOST = b"k" * 32, "0" * 8, "node2"
BEAT = b'{"beat":{}}'
GARBAGE = [
    b"", b"{}", b"[]", b"null", b"\xff", b"{" * 5000, b"9" * 9000, b"\0", b'{"host":1}', b"a" * 70 + b" {}",
    b'{"host":"node2","run":"00000000","nonce":"%s"}' % (b"0" * 32), b'{"host":"nope","run":"x","nonce":"y"}',
]  # fmt: skip


def sealed(head_nonce: str, nonce: str, host: str = HOST, to_head: bool = True) -> bytes:
    return keys.Sealer(keys.session_key(KEY, RUN, host, head_nonce, nonce, to_head)).seal(BEAT)


def message(head_nonce: str, nonce: str, draw: Random) -> tuple[bytes, bool]:
    """Return the first sealed message of a member, and whether it is genuine."""
    genuine = sealed(head_nonce, nonce)
    other_message = keys.Sealer(keys.session_key(KEY, RUN, HOST, head_nonce, nonce, True))
    other_message.seal(BEAT)
    flipped = bytearray(genuine)
    flipped[draw.randrange(len(flipped) - 1)] ^= 1 << draw.randrange(8)
    forms = {
        "of the other direction": sealed(head_nonce, nonce, to_head=False),
        "the second one": other_message.seal(BEAT),
        "of another connection": sealed("0" * 32, nonce),
        "of another host": sealed(head_nonce, nonce, "node3"),
        "cut off": genuine[: draw.randrange(len(genuine))] + b"\n",
        "damaged": bytes(flipped),
        "genuine": genuine,
    }
    kind = draw.choice(list(forms))
    return forms[kind], forms[kind] == genuine


def connect(draw: Random) -> tuple[bool, bool]:
    """Return whether a connection is accepted, and whether it comes from a guard of the job."""
    handshake, is_guard = link.Handshake(KEY, {HOST}), False
    head_nonce, nonce = str(json.loads(handshake.challenge)["nonce"]), secrets.token_hex(16)
    if draw.random() < 0.6:
        hello = json.dumps({"host": HOST, "run": RUN, "nonce": nonce}).encode()
        proof, is_guard = message(head_nonce, nonce, draw)
        proof = proof.rstrip(b"\n")
    else:
        hello, proof = draw.choice(GARBAGE) + draw.choice([b"", b"\r"]), draw.choice(GARBAGE)
    try:
        handshake.recognize(hello, proof)
    except link.Broken:
        return False, is_guard
    return True, is_guard


def test_only_a_guard_with_the_key_of_the_job_is_accepted() -> None:
    cases, accepted = Cases(15_000), 0
    for number, draw in cases:
        try:
            is_accepted, is_guard = connect(draw)
        except Exception as error:
            cases.fault(number, f"{type(error).__name__}: {error}", "")
            continue
        accepted += is_accepted
        if is_accepted != is_guard:
            cases.fault(number, f"accepted: {is_accepted}, a guard of the job: {is_guard}", "")
    cases.require_none(least=500)
    assert accepted > cases.made / 50
