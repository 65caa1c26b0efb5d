"""A look-alike of the hub on 127.0.0.1: /ORG/NAME/resolve/REVISION/FILE, large files behind a redirect to a second server, and faults on demand."""

import contextlib
import dataclasses
import hashlib
import http.server
import re
import socket
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclasses.dataclass
class Request:
    server: "Server"
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    sent: int = 0  # bytes of content


@dataclasses.dataclass
class Fault:
    """What happens to one request instead of an answer, or to its content."""

    status: int = 0  # answer this, with no content
    headers: dict = dataclasses.field(default_factory=dict)
    cut_after: int | None = None  # this many bytes of content, then the connection ends
    stall_after: int | None = None  # this many bytes of content, then nothing until the server ends
    damage: bool = False  # the first byte is another one
    slow: float = 0  # seconds for the content, in many pieces


class Server:
    """One origin. Answers what `find(path)` gives: (status, headers, content)."""

    def __init__(self, find, tls=None):
        self.find = find
        self.requests: list[Request] = []
        self.faults: dict[str, list[Fault]] = {}  # by "METHOD path": one for each request to come
        self.knows_ranges = True
        self.ends = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                server.answer(self, "HEAD")

            def do_GET(self):
                server.answer(self, "GET")

            def log_message(self, *arguments):
                pass

        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        if tls:
            self.listener.socket = tls.wrap_socket(self.listener.socket, server_side=True)
        self.scheme = "https" if tls else "http"
        self.port = self.listener.server_address[1]
        self.thread = threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def url(self, host="127.0.0.1"):
        return f"{self.scheme}://{host}:{self.port}"

    def fail(self, method, path, *faults):
        self.faults.setdefault(f"{method} {path}", []).extend(faults)

    def close(self):
        self.ends.set()
        self.listener.shutdown()
        self.thread.join()
        self.listener.server_close()

    def asked(self, method=None, path=None) -> list[Request]:
        return [r for r in self.requests if method in (None, r.method) and path in (None, r.path)]

    def answer(self, connection, method):
        path = urllib.parse.urlsplit(connection.path).path
        request = Request(self, method, path, {name.lower(): value for name, value in connection.headers.items()})
        self.requests.append(request)
        faults = self.faults.get(f"{method} {path}")
        fault = faults.pop(0) if faults else Fault()
        status, headers, content = (fault.status, fault.headers, b"") if fault.status else self.find(request)
        if fault.damage:
            content = bytes([content[0] ^ 1]) + content[1:]
        headers = dict(headers)
        if method == "GET" and status == 200 and self.knows_ranges:
            status, content = self.cut_range(request, headers, content)
        connection.send_response(status)
        for name, value in ({"Content-Length": len(content)} | headers).items():
            connection.send_header(name, str(value))
        connection.end_headers()
        if method == "GET":
            with contextlib.suppress(OSError):
                self.send(connection, request, content, fault)

    @staticmethod
    def cut_range(request, headers, content):
        wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if not wanted or request.headers.get("if-range", headers.get("ETag")) != headers.get("ETag"):
            return 200, content
        begin = int(wanted[1])
        if begin >= len(content):
            headers["Content-Range"] = f"bytes */{len(content)}"
            return 416, b""
        headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        return 206, content[begin:]

    def send(self, connection, request, content, fault):
        limit = min(limit for limit in (len(content), fault.cut_after, fault.stall_after) if limit is not None)
        piece = max(1, limit // 50) if fault.slow else 1 << 16
        for begin in range(0, limit, piece):
            connection.wfile.write(content[begin : min(begin + piece, limit)])
            request.sent = min(begin + piece, limit)
            time.sleep(fault.slow / 50)
        if fault.stall_after is not None:
            self.ends.wait(60)
        if fault.cut_after is not None or fault.stall_after is not None:
            connection.close_connection = True
            with contextlib.suppress(OSError):
                connection.connection.shutdown(socket.SHUT_RDWR)


class Hub:
    """Two servers: the hub and the storage of its large files, with one model."""

    def __init__(self, files: dict[str, bytes], large=("model.safetensors",), model="org/name", tls=None):
        self.files, self.large, self.model = files, set(large), model
        self.token = None  # that is needed to see the model
        self.gated = False
        self.former = None  # a name from which the model was renamed
        self.storage_host = "127.0.0.1"
        self.etags: dict[str, str] = {}  # instead of the true ones
        self.hub = Server(self.resolve, tls)
        self.storage = Server(self.stored, tls)

    def close(self):
        self.hub.close()
        self.storage.close()

    def path(self, file, revision=COMMIT):
        return f"/{self.model}/resolve/{revision}/{file}"

    def stored_path(self, file):
        return f"/stored/{file}"

    def etag(self, file):
        content = self.files[file]
        if file in self.etags:
            return self.etags[file]
        if file in self.large:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def resolve(self, request):
        name, _, rest = request.path[1:].partition("/resolve/")
        revision, _, file = rest.partition("/")
        if name == self.former:
            return 307, {"Location": f"/{self.model}/resolve/{rest}"}, b""
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Invalid username or password."}, b""
        if self.gated:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."}, b""
        if name != self.model:
            return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b""
        if urllib.parse.unquote(revision) not in ("main", "refs/pr/1", COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        told = {"X-Repo-Commit": COMMIT}
        if file not in self.files:
            return 404, told | {"X-Error-Code": "EntryNotFound"}, b"Entry not found"
        if file not in self.large:
            return 200, told | {"ETag": f'"{self.etag(file)}"'}, self.files[file]
        linked = {"X-Linked-Etag": f'"{self.etag(file)}"', "X-Linked-Size": len(self.files[file])}
        return 302, told | linked | {"Location": f"{self.storage.url(self.storage_host)}{self.stored_path(file)}?signed"}, b""

    def stored(self, request):
        file = request.path.removeprefix("/stored/")
        content = self.files[file]
        return 200, {"ETag": f'"{hashlib.md5(content).hexdigest()}"'}, content
