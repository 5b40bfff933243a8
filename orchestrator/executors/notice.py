"""The word of a cloud that it is about to take this machine away: AWS's and Google's metadata services.

They answer at a link-local address, to any program on the machine; no account is needed, and no proxy is used. Where
they are is said by the variables that their own tools have (`AWS_EC2_METADATA_SERVICE_ENDPOINT`, `GCE_METADATA_HOST`).
What comes from there is read with a limit on its time and its length, and anything but a notice in its documented form
is no notice.

AWS: EC2 user guide, "Spot Instance interruption notices" (two minutes, best effort; asked every 5 s as it recommends)
and "Use the Instance Metadata Service" (version 2, with a token). A rebalance recommendation is told and changes
nothing: it says that an interruption is likelier, and saves would be made for nothing.
Google: Compute Engine, "Create and use Spot VMs", the key `instance/preempted` (30 s).
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from anchorleg.words import printable

Cloud = Literal["aws", "gcp"]

#: As AWS recommends; of Google's 30 s a save has 25 left.
LOOK_S = 5.0
#: The service is on the machine's own network card and answers within milliseconds.
TIMEOUT_S = 2.0
#: Most of them in a look at one service.
REQUESTS = 3
#: A notice has about a hundred bytes, a token 56.
MOST_BYTES = 4096
#: A token for one look.
TOKEN_S = 60
#: Of words that the service chose.
WORDS_CHARS = 40

_ADDRESS = "http://169.254.169.254"
_NAMES: Mapping[Cloud, str] = {"aws": "AWS", "gcp": "Google Cloud"}


@dataclass(frozen=True)
class Notice:
    """`words`: who takes the machine and when, as the beginning of a sentence. `final`: it is certain."""

    words: str
    final: bool = True


class _UnusableError(Exception):
    """The service did not answer, or not as it should; with a clause that says so."""


class Metadata:
    """The metadata service of `cloud`, wherever `environ` says that it is."""

    def __init__(self, cloud: Cloud, environ: Mapping[str, str]) -> None:
        self.cloud = cloud
        if cloud == "aws":
            self._url = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _ADDRESS
        else:
            host = environ.get("GCE_METADATA_HOST")
            self._url = f"http://{host}" if host else _ADDRESS

    def ask(self) -> Notice | None:
        """What it says now; None: nothing. Errors: _UnusableError."""
        return self._ask_aws() if self.cloud == "aws" else self._ask_google()

    def _ask_aws(self) -> Notice | None:
        asked = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        status, token, _ = self._request("PUT", "/latest/api/token", asked)
        if status != http.client.OK or not token.isascii() or not token.isprintable():
            raise _UnusableError(f"it gave no token (status {status})")
        proof = {"X-aws-ec2-metadata-token": token}
        status, text, _ = self._request("GET", "/latest/meta-data/spot/instance-action", proof)
        if status == http.client.OK:
            return Notice(_action_of(text))
        if status != http.client.NOT_FOUND:
            raise _UnusableError(f"it answered with status {status}")
        status, _, _ = self._request("GET", "/latest/meta-data/events/recommendations/rebalance", proof)
        if status != http.client.OK:
            return None
        return Notice("AWS says that it is likelier now to take this machine away", final=False)

    def _ask_google(self) -> Notice | None:
        asked = {"Metadata-Flavor": "Google"}
        status, text, flavor = self._request("GET", "/computeMetadata/v1/instance/preempted", asked)
        if status != http.client.OK or flavor != "Google" or text not in {"TRUE", "FALSE"}:
            raise _UnusableError(f"it answered with status {status} and not with TRUE or FALSE")
        return Notice("Google Cloud takes this machine away within 30 s") if text == "TRUE" else None

    def _request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str, str]:
        """Status, body and the header Metadata-Flavor. Errors: _UnusableError."""
        try:
            where = urlsplit(self._url)
            if where.scheme != "http" or not where.hostname:
                raise _UnusableError(f"{printable(self._url)[:WORDS_CHARS]} is no http:// address")
            connection = http.client.HTTPConnection(where.hostname, where.port, timeout=TIMEOUT_S)
            try:
                connection.request(method, where.path.rstrip("/") + path, headers=dict(headers))
                answer = connection.getresponse()
                body = answer.read(MOST_BYTES + 1)
                flavor = answer.getheader("Metadata-Flavor") or ""
            finally:
                connection.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _UnusableError(f"it does not answer ({type(error).__name__})") from None
        if len(body) > MOST_BYTES:
            raise _UnusableError("its answer is too long")
        return answer.status, body.decode("utf-8", "replace").strip(), flavor


def _action_of(text: str) -> str:
    """Of `{"action": "terminate", "time": "2026-11-24T08:22:00Z"}`. Errors: _UnusableError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    action = value.get("action") if isinstance(value, dict) else None
    if action not in {"terminate", "stop", "hibernate"}:
        raise _UnusableError("its answer is no notice that is documented")
    when = printable(str(value.get("time", "")))[:WORDS_CHARS]
    return f"AWS takes this machine away ({action}{f' at {when}' if when else ''})"


class NoticeWatch:
    """Asks `clouds` every `look_s`, in a thread of its own, until one gives notice.

    `on_notice` is called once, with the notice; an OSError of it means that it is called again. `say` gets one line for
    each thing that a person should know.
    """

    def __init__(
        self,
        clouds: tuple[Cloud, ...],
        environ: Mapping[str, str],
        on_notice: Callable[[Notice], None],
        say: Callable[[str], None],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        self._services = [Metadata(cloud, environ) for cloud in clouds]
        self._on_notice = on_notice
        self._say = say
        self._look_s = look_s
        self._patience_s = REQUESTS * TIMEOUT_S * len(clouds)
        self._said: set[str] = set()
        self._asked, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="preemption-notice", daemon=True)

    def begin(self) -> None:
        """Begin to ask, and wait for the first answer as long as one may take."""
        self._thread.start()
        self._asked.wait(self._patience_s)

    def end(self) -> None:
        """Ask no more. Idempotent; waits for an answer that is under way."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(self._patience_s)

    def _run(self) -> None:
        while not self._look():
            self._asked.set()
            if self._ended.wait(self._look_s):
                return
        self._asked.set()

    def _look(self) -> bool:
        """Whether it is over: notice was given, and passed on."""
        troubles = []
        for service in self._services:
            try:
                notice = service.ask()
            except _UnusableError as error:
                troubles.append(f"{_NAMES[service.cloud]}'s metadata service: {error}")
                continue
            self._services = [service]  # where one answers, no other one does
            if notice is not None and not notice.final:
                self._say_once(f"{notice.words}; nothing is done for that")
            return notice is not None and notice.final and self._passed_on(notice)
        self._say_once(f"no preemption notice can be seen: {'; '.join(troubles)}. It is asked again and again")
        return False

    def _passed_on(self, notice: Notice) -> bool:
        try:
            self._on_notice(notice)
        except OSError as error:
            self._say_once(f"the jobs could not be told of it ({error.strerror or error}); trying again")
            return False
        return True

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)
