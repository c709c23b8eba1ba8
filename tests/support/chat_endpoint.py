"""A small OpenAI-compatible endpoint that answers as a test says."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hermes_testing.chat_engines import refusal_of, usage_of


@contextmanager
def server(answer, *, engine="other", models=(200, {"object": "list", "data": []})):
    """Serve `answer(request count) -> (status, headers, body)`; yields its address and the requests.

    A body is JSON, or the bytes as they are.

    What an engine of `hermes_testing.chat_engines` refuses is refused here, and a question for one token is answered
    with what it counts; neither is among the requests.
    """
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = models
            self._reply(status, {}, body)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if (refusal := refusal_of(engine, body)) is not None:
                self._reply(refusal[0], {}, refusal[1])
            elif body.get("max_tokens") == 1:
                message = {"role": "assistant", "content": "h"}
                choices = [{"message": message, "finish_reason": "length"}]
                self._reply(200, {}, {"choices": choices, "usage": usage_of(engine, body)})
            else:
                seen.append(body)
                self._reply(*answer(len(seen)))

        def _reply(self, status, headers, body):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers, "Content-Length": len(data)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/v1", seen
        http.shutdown()
