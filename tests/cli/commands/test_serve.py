"""`xtts serve`: what it refuses before it loads anything, and the life of a real process."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.calling import xtts
from tests.speaking import make_run
from tests.waiting import wait_until
from xtts_pipeline.cli.commands import serve as serve_module
from xtts_pipeline.errors import XttsError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("serve") / "tiny")


def refusal(*words: object) -> str:
    result = xtts("serve", *words)
    assert result.exit_code != 0
    error = result.exception
    assert not isinstance(error, XttsError) or error.exit_code == 2
    return str(error) if isinstance(error, XttsError) else result.output


def test_other_machines_are_served_with_a_token_only(run: Path, tmp_path: Path) -> None:
    assert "add --token-file" in refusal("--voice", run, "--host", "0.0.0.0")  # noqa: S104 (refused)
    assert "add --token-file" in refusal("--voice", run, "--host", "example.org")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "found 0 characters"),
        (b"short\n", "found 5 characters"),
        (b"one token\nanother token\n", "found white space or control characters"),
        (b"\xff" * 20, "found other characters than ASCII"),
        (b"a" * 5_000, "cannot be read (found 5000 bytes, expected at most 4096)"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_file_without_a_token_is_refused_with_what_was_found(
    run: Path, tmp_path: Path, content: bytes | None, found: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    words = refusal("--voice", run, "--host", "0.0.0.0", "--token-file", path)  # noqa: S104 (refused)
    assert f"{path}: {found}" in words
    assert "16 characters or more" in words


def test_wyoming_has_no_token_and_serves_other_machines_of_a_trusted_network_only(run: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-word-of-clients")
    with socket.create_server(("127.0.0.1", 0)) as used:
        # With every check passed, the port in use is the next thing that is refused.
        port = used.getsockname()[1]
        words = ("--voice", run, "--host", "0.0.0.0", "--token-file", tmp_path / "token", "--port", port)  # noqa: S104
        assert "the protocol has no token" in refusal(*words, "--wyoming")
        assert "cannot listen" in refusal(*words, "--wyoming", "--trust-network")
        assert "cannot listen" in refusal(*words)


def test_a_port_of_a_protocol_that_is_not_served_is_refused(run: Path) -> None:
    assert "--wyoming-port 10300: the protocol is not served; add --wyoming" in refusal(
        "--voice", run, "--wyoming-port", "10300"
    )


def test_voices_have_names_of_their_own(run: Path, tmp_path: Path) -> None:
    assert "two voices have the same name" in refusal("--voice", run, "--voice", f"tiny={run}")
    assert "no checkpoint here" in refusal("--voice", f"other={tmp_path}")


def test_a_voice_that_is_missing_is_refused_with_all_that_may_be_one(tmp_path: Path) -> None:
    assert refusal("--voice", tmp_path / "no").startswith(f"{tmp_path}/no: nothing is there; expected a run folder")
    assert refusal("--voice", tmp_path / "no").endswith(", or RUN/best; or name a voice folder")


def test_a_missing_extra_is_named_with_its_command(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "MODULES", ("starlette", "no_such_module"))
    assert "no package no_such_module; run pip install" in refusal("--voice", run)


def test_a_port_in_use_is_one_line_before_tensorflow_starts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(serve_module, "tensorflow")
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        for option, others in (("--port", ()), ("--wyoming-port", ("--port", 0, "--wyoming"))):
            found = refusal("--voice", run, option, port, *others)
            assert f"127.0.0.1:{port}: cannot listen (Address already in use); choose" in found
            assert found.rstrip().endswith(f"choose another --host or {option}")


def test_a_host_that_is_no_name_is_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-word-of-clients")
    for host in ("a..b", "a" * 64):
        words = ("--voice", run, "--host", host, "--token-file", tmp_path / "token")
        assert f"{host}:8000: cannot listen (no name of a host)" in refusal(*words)


def test_voices_take_settings_of_synthesis(run: Path) -> None:
    assert "did you mean synthesis.flow_steps?" in refusal(
        "--voice", run, "--port", 0, "--set", "synthesis.flow_step=2"
    )
    assert "takes synthesis.* alone" in refusal("--voice", run, "--port", 0, "--set", "training.steps=3")


@contextmanager
def served(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a real process that serves, and its URL."""
    words = ["serve", "--voice", f"ann={run}", "--port", "0", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "xtts_pipeline", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stderr.readline()
            (url,) = re.findall(r"^serving ann at (http://127\.0\.0\.1:\d+); Ctrl-C stops$", line)
            yield process, url
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_serves_until_a_signal_and_finishes_its_speech(run: Path, number: signal.Signals) -> None:
    with served(run) as (process, url):
        body = {"input": "one two three four. " * 10, "response_format": "pcm"}
        with httpx2.stream("POST", f"{url}/v1/audio/speech", json=body, timeout=120.0) as answer:
            process.send_signal(number)
            size = sum(len(part) for part in answer.iter_bytes())
        assert process.wait(timeout=120.0) == 0
        assert process.stderr.read() == ""
    # A pause of 0.35 s follows each sentence but the last.
    assert size > 9 * 0.35 * 24_000 * 2


def test_a_second_signal_ends_the_process_within_a_speech(run: Path) -> None:
    with served(run, "--max-characters", "100000") as (process, url):
        body = {"input": "one two three four. " * 4_000, "response_format": "pcm"}
        with httpx2.stream("POST", f"{url}/v1/audio/speech", json=body, timeout=120.0) as answer:
            parts = answer.iter_bytes()
            next(parts)
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: is_refused(int(url.rpartition(":")[2])), process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=120.0) == -signal.SIGTERM


def is_refused(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=60.0):
        return False
    return True
