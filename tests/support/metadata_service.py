"""A stand-in for the metadata services of AWS and Google: real sockets, the answers that their pages document."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "AQAEAN-token=="
NOTICE = json.dumps({"action": "terminate", "time": "2026-11-24T08:22:00Z"})


class MetadataService:
    """`answers`: "METHOD path" → (status, body); what is not in it is not found. `asked`: what was, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.says_google = True
        self.answers: dict[str, tuple[int, str]] = {
            "PUT /latest/api/token": (200, TOKEN),
            "GET /computeMetadata/v1/instance/preempted": (200, "FALSE\n"),
        }
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place = f"{self.command} {self.path}"
                service.asked.append(place)
                status, body = service.answers.get(place, (404, "not found"))
                of_aws, token = "/latest/meta-data" in self.path, self.headers["X-aws-ec2-metadata-token"]
                if (of_aws and token != TOKEN) or (place.startswith("PUT") and not self._asks_for_a_token()):
                    status, body = 401, ""  # as IMDSv2 answers
                if "/computeMetadata" in self.path and self.headers["Metadata-Flavor"] != "Google":
                    status, body = 403, ""
                self.send_response(status)
                self.send_header("Content-Length", str(len(body.encode())))
                if "/computeMetadata" in self.path and service.says_google:
                    self.send_header("Metadata-Flavor", "Google")
                self.end_headers()
                self.wfile.write(body.encode())

            def do_PUT(self) -> None:
                self.do_GET()

            def _asks_for_a_token(self) -> bool:
                return 1 <= int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) <= 21600

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead to it, and proxies that lead nowhere."""
        where = f"127.0.0.1:{self.server.server_address[1]}"
        nowhere = "http://127.0.0.1:9"
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{where}/",
            "GCE_METADATA_HOST": where,
            "http_proxy": nowhere,
            "HTTP_PROXY": nowhere,
            "no_proxy": "",
        }

    def take_away(self, cloud: str) -> None:
        """Give notice from now on."""
        if cloud == "aws":
            self.answers["GET /latest/meta-data/spot/instance-action"] = (200, NOTICE)
        else:
            self.answers["GET /computeMetadata/v1/instance/preempted"] = (200, "TRUE")

    def is_only(self, cloud: str) -> None:
        """The other cloud's service is not there."""
        mine = "latest" if cloud == "aws" else "computeMetadata"
        self.answers = {place: answer for place, answer in self.answers.items() if f"/{mine}/" in place}


@contextlib.contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """One that answers until the end of the block."""
    service = MetadataService()
    thread = threading.Thread(target=service.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        service.server.server_close()
        thread.join()
