"""As much of a W&B server as `wandb sync` and a live run need, on this machine: GraphQL, the file stream, uploads.

It keeps a run's files as the real one does: `offset` says at which line of a file the sent lines go. A run that is
resumed is told what is kept of it. It can also be a bad one: refuse with a status, or take requests and never answer.
Written against what wandb 0.31.0 sends. Standard library only.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HISTORY = "wandb-history.jsonl"
SUMMARY = "wandb-summary.json"
#: wandb checks its length and nothing more.
API_KEY = "0123456789abcdef" * 3


class Server:
    """`url`; what has arrived: `files[run][file name]` lines by number, `projects` by run, `asked` by name.

    `status`: what every request is refused with from now on; `hang()` and `answer_again()`: take requests, answer none.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.refused = 0
        self.hung = 0
        self._answers = threading.Event()
        self._answers.set()
        self.files: dict[str, dict[str, dict[int, str]]] = {}
        self.projects: dict[str, str] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.url = ""
        self._lock = threading.Lock()

    def history(self, run: str) -> list[dict[str, Any]]:
        """The lines of a run's history in their order, none before it is there; a missing number is an error."""
        with self._lock:
            lines = dict(self.files.get(run, {}).get(HISTORY, {}))
        return [json.loads(lines[number]) for number in range(len(lines))]

    def hang(self) -> None:
        """From now on nobody gets an answer."""
        self._answers.clear()

    def answer_again(self) -> None:
        """An end of hanging, and of refusing. Those who still wait are hung up on."""
        self.status = None
        self._answers.set()

    def may_answer(self) -> bool:
        """Whether this request is to be answered; hangs as long as the server does, and is then hung up on."""
        if self._answers.is_set():
            return True
        self.hung += 1
        self._answers.wait()
        return False

    def env(self) -> dict[str, str]:
        """What a shell needs to reach it."""
        return {
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": API_KEY,
            "WANDB_ERROR_REPORTING": "false",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        """The reply to a POST."""
        value = json.loads(body or b"{}")
        with self._lock:
            if path == "/graphql":
                return {"data": self._graphql(value["query"], value.get("variables") or {})}
            found = re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", path)
            if found:
                self._stream(found[3], value.get("files") or {})
            self.asked.append(path)
            return {}

    def _stream(self, run: str, files: dict[str, Any]) -> None:
        for name, chunk in files.items():
            kept = self.files.setdefault(run, {}).setdefault(name, {})
            kept.update({chunk["offset"] + i: line for i, line in enumerate(chunk["content"])})

    def _resumed(self, project: str, run: str) -> dict[str, Any]:
        """What is kept of `run`; a bucket of None: nothing."""
        place = {"name": project, "entity": {"name": "nobody"}}
        if run not in self.projects:
            return {**place, "bucket": None}
        kept = self.files.get(run, {})
        lines = {name: [found[number] for number in sorted(found)] for name, found in kept.items()}
        history, summary = lines.get(HISTORY, []), lines.get(SUMMARY, [])
        bucket = {
            "name": run,
            "displayName": run,
            "summaryMetrics": summary[-1] if summary else "{}",
            "logLineCount": 0,
            "historyLineCount": len(history),
            "eventsLineCount": len(lines.get("wandb-events.jsonl", [])),
            "historyTail": json.dumps(history[-1:]),
            "eventsTail": "[]",
            "config": json.dumps(self.configs.get(run, {})),
            "tags": [],
            "notes": None,
            # What tells wandb that the run has begun, so that there is something to resume.
            "wandbConfig": json.dumps({"t": self.configs[run]["_wandb"]["value"]["t"]}),
        }
        return {**place, "bucket": bucket}

    def _shown(self, project: str, run: str) -> dict[str, Any] | None:
        """What `wandb.Api` is told of `run`."""
        bucket = self._resumed(project, run)["bucket"]
        if bucket is None:
            return None
        names = ("tags", "name", "displayName", "config", "notes", "summaryMetrics", "historyLineCount")
        unused = ("sweepName", "group", "jobType", "commit", "description", "heartbeatAt", "historyKeys")
        more = {"id": run, "projectId": "1", "state": "running", "readOnly": False, "systemMetrics": "{}"}
        more |= {"createdAt": "2026-01-01T00:00:00Z", "user": {"name": "nobody", "username": "nobody"}}
        return {**dict.fromkeys(unused), **{name: bucket[name] for name in names}, **more}

    def _graphql(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((re.search(r"(?:query|mutation)\s+(\w+)", query) or [""] * 2)[1])
        if "upsertBucket" in query:
            run, project = given["name"], given["project"]
            self.projects[run] = project
            if given.get("config"):
                self.configs[run] = json.loads(given["config"])
            place = {"name": project, "entity": {"name": "nobody"}}
            bucket = {"id": run, "name": run, "displayName": run, "sweepName": None, "project": place}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "RunResumeStatus" in query:
            return {"model": self._resumed(given["project"], given["name"])}
        if "query Run(" in query:
            return {"project": {"run": self._shown(given["project"], given["name"])}}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/upload/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": given.get("run"), "uploadHeaders": [], "files": files}}
        if "serverInfo" in query:
            return {"serverInfo": {"features": [], "cliVersionInfo": {}, "latestLocalVersionInfo": None}}
        if "viewer" in query:
            who = {"id": "1", "entity": "nobody", "username": "nobody", "flags": "{}", "teams": {"edges": []}}
            return {"viewer": who}
        return {}


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """wandb's service hangs up without a word at its end."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving() -> Iterator[Server]:
    """A server until the end of the block."""
    kept = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self, value: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _may_answer(self) -> bool:
            if not kept.may_answer():
                self.close_connection = True
            elif kept.status is not None:
                kept.refused += 1
                self._reply({"errors": [{"message": "no"}]}, kept.status)
            else:
                return True
            return False

        def do_POST(self) -> None:
            body = self._body()
            if self._may_answer():
                self._reply(kept.answer(self.path, body))

        def do_PUT(self) -> None:
            self._body()
            if self._may_answer():
                self._reply({})

        def do_GET(self) -> None:
            if self._may_answer():
                self._reply({})

        def log_message(self, *_words: object) -> None:
            pass

    server = _Http(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        kept.answer_again()
        server.shutdown()
        server.server_close()
        thread.join()
