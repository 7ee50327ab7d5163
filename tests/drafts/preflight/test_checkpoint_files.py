"""Checkpoints on a hub: headers come in ranges, and without the hub nothing fails."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sweeper.drafts.preflight import DraftReport, Pair, Serving, check_pair, open_target
from sweeper.drafts.preflight.checkpoint_files import LocalFiles, UnreachableError, files_of
from tests.checkpoints import TARGET_IDS, write_eagle3, write_safetensors, write_target


class Hub(BaseHTTPRequestHandler):
    """Serves ``folder``/name/file as the repository org/name; counts the bytes of weights that it sends."""

    folder: Path
    ranges = True
    refused = ""
    sent: list[tuple[str, int]]

    def do_GET(self) -> None:
        found = re.fullmatch(r"/org/([\w-]+)/resolve/main/(.+)", self.path)
        file = self.folder / found[1] / found[2] if found else None
        if file is None or not file.is_file():
            return self.answer(404, b"")
        if found and found[1] == self.refused:
            return self.answer(403, b"")
        content, status = file.read_bytes(), 200
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if span and self.ranges:
            content, status = content[int(span[1]) : int(span[2]) + 1], 206
        self.sent.append((file.name, len(content)))
        return self.answer(status, content)

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    class Own(Hub):
        folder, sent = tmp_path, []

    write_target(tmp_path / "target")
    write_eagle3(tmp_path / "draft")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield Own
    server.shutdown()
    server.server_close()
    thread.join()


def on_the_hub(draft: str = "org/draft", target: str = "org/target") -> DraftReport:
    return check_pair(Pair("d", "EAGLE3", draft), open_target(target), Serving())


def test_a_healthy_draft_on_the_hub_costs_headers_only(hub: type[Hub]) -> None:
    assert on_the_hub().findings == ()
    read = sum(size for name, size in hub.sent if name == "model.safetensors")
    assert read < (hub.folder / "draft" / "model.safetensors").stat().st_size / 2


def test_a_hub_that_knows_no_ranges_is_read_as_well(hub: type[Hub]) -> None:
    hub.ranges = False
    assert on_the_hub().findings == ()


def test_a_fault_on_the_hub_is_found(hub: type[Hub]) -> None:
    path = write_eagle3(hub.folder / "draft")
    write_safetensors(path / "model.safetensors", {}, {"d2t": TARGET_IDS})
    found = {finding.rule for finding in on_the_hub().findings}
    assert found == {"tensor-missing", "d2t-absolute", "d2t-range"}


def test_who_may_not_read_a_repository_is_told_so(hub: type[Hub]) -> None:
    hub.refused = "draft"
    (finding,) = on_the_hub().findings
    assert (finding.level.value, finding.rule) == ("warning", "not-checked")
    assert "the hub answers 403" in finding.what


def test_a_repository_without_config_is_an_error(hub: type[Hub]) -> None:
    (finding,) = on_the_hub("org/nothing").findings
    assert (finding.level.value, finding.rule) == ("error", "config-unreadable")


def test_without_a_hub_a_draft_is_not_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    report = on_the_hub(target=str(write_target(tmp_path / "target")))
    (finding,) = report.findings
    assert (finding.level.value, finding.rule) == ("warning", "not-checked")
    assert "no answer from the hub" in finding.what


def test_offline_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (finding,) = on_the_hub().findings
    assert "HF_HUB_OFFLINE" in finding.what


def test_a_path_that_is_not_here_is_no_hub_id() -> None:
    with pytest.raises(UnreachableError, match="no directory /checkpoints/x"):
        files_of("/checkpoints/x")


def test_a_range_that_leaves_the_file_is_short(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert LocalFiles(tmp_path).read_range("x", 3, 10) == b"45"
