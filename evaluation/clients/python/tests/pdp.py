"""A PDP on a port of its own, which answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

# A request, by method, path and body; and the status, the body and the headers of its answer.
Asked = tuple[str, str, Any]
Said = tuple[int, Any, dict[str, str]]


# What a client with handlers of the service's own types declares.
ADOPTS = {"supported_mandatory_extensions": ["obligations"], "supported_obligations": ["custom"]}


def own(id: str, type: str, **properties: Any) -> dict[str, Any]:
    """An obligation of a type of the service's own, as October's draft writes it."""
    return {
        "id": id,
        "type": "custom",
        "properties": {"vendor": "policy-service", "type": type, "properties": properties},
    }


class PDP:
    """Answers by a function, and keeps the requests. Receipts are answered with 204. PDP_URL becomes its URL."""

    def __init__(self, answer: Callable[[str, str, Any], Said], receipts: bool = True) -> None:
        self.asked: list[Asked] = []
        self.names: list[set[str]] = []  # of the headers, in small letters
        pdp = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if receipts and self.path.endswith("/obligations"):
                    self.says(204, None, {})
                    return
                body = json.loads(text) if text else None
                pdp.asked.append((self.command, self.path, body))
                pdp.names.append({name.lower() for name in self.headers})
                self.says(*answer(self.command, self.path, body))

            do_GET = do_POST

            def says(self, status: int, body: Any, headers: dict[str, str]) -> None:
                text = b"" if body is None else json.dumps(body).replace("PDP_URL", pdp.url).encode()
                self.send_response(status)
                given = {"Content-Type": "application/json", "X-Request-ID": self.headers.get("X-Request-ID") or "none"}
                for name, value in {**given, **headers}.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.asked]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
