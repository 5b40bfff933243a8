"""The word of a cloud that it is about to take this machine away, which makes a wish to stop: every job saves and ends.

AWS's and Google's metadata services answer at a link-local address, without an account and without a proxy, or where
the variables of their own tools say. What comes from there is read with a limit on its time and its length, and
anything but a notice in its documented form is no notice.

AWS: EC2 user guide, "Spot Instance interruption notices" (two minutes, best effort; asked every 5 s as it recommends)
and "Use the Instance Metadata Service" (version 2, with a token). Google: Compute Engine, "Create and use Spot VMs",
the key `instance/preempted` (30 s).
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

from anchorleg.words import printable
from orchestrator.controller import HAND_OVER_MARGIN_S
from orchestrator.run.ledger import read_control, write_control
from orchestrator.run.rundir import Run, RunDir

Cloud = Literal["aws", "gcp"]

#: Who wished the end of a run whose machine goes.
PREEMPTED = "preemption notice"
#: As AWS recommends; of Google's 30 s a save has 25 left.
LOOK_S = 5.0
#: The service is on the machine's own network card and answers within milliseconds.
TIMEOUT_S = 2.0
#: A notice has about a hundred bytes, a token 56.
MOST_BYTES = 4096
#: Of words that the service chose.
WORDS_CHARS = 40

_ADDRESS = "http://169.254.169.254"


class UnusableError(Exception):
    """The service did not answer, or not as it should; with a clause that says so."""


@contextmanager
def notices_heeded(run: Run, run_dir: RunDir, say: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile a notice stops the run, where the config asks for that; one that is there does before the first job."""

    def stop(words: str) -> None:
        if read_control(run_dir).wish == "run":  # else somebody wished it before: it is stopped, and not handed over
            grace_s = float(run.config.lead_seconds) + HAND_OVER_MARGIN_S
            write_control(run_dir, "stop", now=time.time(), by=PREEMPTED, grace_s=grace_s)
            say(f"{words}: every job is asked to save and end")

    asked = run.config.relay.preemption_notice
    if asked == "none":
        yield
        return
    with clouds_asked(("aws", "gcp") if asked == "auto" else (asked,), os.environ, stop, say):
        yield


@contextmanager
def clouds_asked(
    clouds: tuple[Cloud, ...],
    environ: Mapping[str, str],
    on_notice: Callable[[str], None],
    say: Callable[[str], None],
    *,
    look_s: float = LOOK_S,
) -> Iterator[None]:
    """Meanwhile ask `clouds` every `look_s`, in a thread, until one gives notice. Waits for the first answer.

    `on_notice` is called once, with the words; an OSError of it means that it is called again. `say` gets one line for
    each thing that a person should know.
    """
    patience_s = 2 * TIMEOUT_S * len(clouds)  # of AWS it takes two requests
    asked, ended = threading.Event(), threading.Event()
    said: set[str] = set()

    def say_once(line: str) -> None:
        if line not in said:
            said.add(line)
            say(f"{line}; trying again")

    def is_passed_on() -> bool:
        troubles = []
        for cloud in clouds:
            try:
                if words := notice_of(cloud, environ):
                    on_notice(words)
                return bool(words)  # where one answers, no other one does
            except UnusableError as error:
                troubles.append(f"{cloud}: {error}")
            except OSError as error:
                say_once(f"jobs could not be told of a notice ({error.strerror or error})")
                return False
        say_once(f"no preemption notice can be read: {'; '.join(troubles)}")
        return False

    def ask_until_notice() -> None:
        while not is_passed_on():
            asked.set()
            if ended.wait(look_s):
                return
        asked.set()

    thread = threading.Thread(target=ask_until_notice, name="preemption-notice", daemon=True)
    thread.start()
    asked.wait(patience_s)
    try:
        yield
    finally:
        ended.set()
        thread.join(patience_s)


def notice_of(cloud: Cloud, environ: Mapping[str, str]) -> str:
    """What the cloud says now, as the beginning of a sentence; empty: nothing. Errors: UnusableError."""
    if cloud == "gcp":
        host = environ.get("GCE_METADATA_HOST")
        address, asked = f"http://{host}" if host else _ADDRESS, {"Metadata-Flavor": "Google"}
        status, text, flavor = _request(address, "GET", "/computeMetadata/v1/instance/preempted", asked)
        if status != http.client.OK or flavor != "Google" or text not in {"TRUE", "FALSE"}:
            raise UnusableError(f"it answered with status {status} instead of TRUE or FALSE")
        return "Google Cloud takes this machine away within 30 s" if text == "TRUE" else ""
    address = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _ADDRESS
    asked = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}  # for one look
    status, token, _ = _request(address, "PUT", "/latest/api/token", asked)
    if status != http.client.OK or not token.isascii() or not token.isprintable():
        raise UnusableError(f"it gave no token (status {status})")
    proof = {"X-aws-ec2-metadata-token": token}
    status, text, _ = _request(address, "GET", "/latest/meta-data/spot/instance-action", proof)
    if status == http.client.NOT_FOUND:
        return ""
    if status != http.client.OK:
        raise UnusableError(f"it answered with status {status}")
    try:
        value = json.loads(text)  # {"action": "terminate", "time": "2026-11-24T08:22:00Z"}
        action = value["action"]
    except (ValueError, RecursionError, LookupError, TypeError):
        action = None
    if action not in ("terminate", "stop", "hibernate"):
        raise UnusableError("its answer is not a documented notice")
    return f"AWS takes this machine away ({action} at {printable(str(value.get('time', '')))[:WORDS_CHARS]})"


def _request(address: str, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str, str]:
    """Status, body and the header Metadata-Flavor. Errors: UnusableError."""
    try:
        where = urlsplit(address)
        if where.scheme != "http" or not where.hostname:
            raise UnusableError(f"{printable(address)[:WORDS_CHARS]} is not an http:// address")
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, where.path.rstrip("/") + path, headers=dict(headers))
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
            flavor = answer.getheader("Metadata-Flavor") or ""
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UnusableError(f"it does not answer ({type(error).__name__})") from None
    if len(body) > MOST_BYTES:
        raise UnusableError("its answer is too long")
    return answer.status, body.decode("utf-8", "replace").strip(), flavor
