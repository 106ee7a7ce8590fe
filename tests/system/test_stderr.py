"""What cannot be said on stderr is lost, and the work goes on."""

import os
import threading
from pathlib import Path

import pytest

from xtts_pipeline.system.stderr import open_stderr, silent_decoder


@pytest.mark.parametrize("place", ["full disk", "no reader", "slow reader"])
def test_a_stream_that_cannot_be_written_raises_nothing(place: str) -> None:
    reader, descriptor = os.pipe()
    if place == "slow reader":
        os.set_blocking(descriptor, False)
    else:
        os.close(reader)
    if place == "full disk":
        os.close(descriptor)
        descriptor = os.open("/dev/full", os.O_WRONLY)
    with open_stderr(descriptor, "utf-8", closefd=True) as stream:
        for _ in range(1_000):
            stream.write(f"{'step 1: loss 2.000 ' * 20}\n")
        stream.flush()
    if place == "slow reader":
        assert os.read(reader, 19) == b"step 1: loss 2.000 "
        os.close(reader)


def test_a_line_is_written_at_once_and_what_cannot_be_encoded_is_escaped(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        stream = open_stderr(log.fileno(), "ascii", closefd=False)
        stream.write("läuft\n")
        assert (tmp_path / "log").read_bytes() == b"l\\xe4uft\n"
        assert stream.fileno() == log.fileno()


def test_a_decoder_is_silent_and_what_follows_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with silent_decoder():
        os.write(2, b"[src/libmpg123/layer3.c] error")
    os.write(2, b"after")
    with pytest.raises(ValueError, match="damaged"), silent_decoder():
        raise ValueError("damaged")
    os.write(2, b"wards")

    def decode() -> None:
        with silent_decoder():  # what other threads say is not lost
            os.write(2, b" and more")

    thread = threading.Thread(target=decode)
    thread.start()
    thread.join()
    assert capfd.readouterr().err == "afterwards and more"
