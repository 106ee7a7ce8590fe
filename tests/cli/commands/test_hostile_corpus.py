"""Two hundred rows and files that mean harm, in one corpus: each ends in rejected.jsonl under its reason."""

import io
import json
import os
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.calling import start_xtts
from tests.json_lines import read_json_lines
from xtts_pipeline.errors import Reason

RATE = 22_050
TONE = (0.3 * np.sin(np.arange(RATE // 2) * 0.05)).astype(np.float32)


def wav(wave: np.ndarray, subtype: str = "FLOAT", rate: int = RATE, kind: str = "WAV") -> bytes:
    target = io.BytesIO()
    soundfile.write(target, wave, rate, format=kind, subtype=subtype)
    return target.getvalue()


def header(data_bytes: int, rate: int = RATE) -> bytes:
    """A 16-bit mono WAV header that promises so many bytes and brings none."""
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + data_bytes) + b"WAVEfmt " + form + b"data" + struct.pack("<I", data_bytes)


def with_value(value: float) -> np.ndarray:
    wave = TONE.copy()
    wave[1_000] = value
    return wave


CONTAINERS = ("RF64", "W64", "AIFF", "AU")
# libsndfile prints a line on stdout for a damaged one.
SDS = bytearray(wav(TONE, "PCM_16", kind="SDS"))
SDS[200:220] = bytes(20)
# What lies at the clip's place, and why it must be refused.
FILES: dict[str, tuple[bytes, Reason]] = {
    "nothing": (b"", Reason.AUDIO_UNREADABLE),
    "text": (b"this is not a sound file at all, whatever its name says", Reason.AUDIO_UNREADABLE),
    "header_without_data": (header(0), Reason.AUDIO_EMPTY),
    "ten_hours_promised": (header(2 * RATE * 36_000), Reason.AUDIO_TOO_LONG),
    "cut_header": (header(100)[:20], Reason.AUDIO_UNREADABLE),
    "nan": (wav(with_value(np.nan)), Reason.AUDIO_NOT_FINITE),
    "infinity": (wav(with_value(np.inf)), Reason.AUDIO_NOT_FINITE),
    "far_over_full_scale": (wav(with_value(1e30)), Reason.AUDIO_OUT_OF_RANGE),
    "constant": (wav(np.full(RATE, 0.5, np.float32)), Reason.AUDIO_CONSTANT),
    "sds_that_prints": (bytes(SDS), Reason.AUDIO_UNREADABLE),
    "adpcm": (wav(np.tile(TONE, 4), "IMA_ADPCM"), Reason.AUDIO_UNREADABLE),
    "gsm": (wav(np.tile(TONE, 4), "GSM610", 8_000), Reason.AUDIO_UNREADABLE),
    **{f"cut_{kind}": (wav(TONE, "PCM_16", kind=kind)[:-1_000], Reason.AUDIO_UNREADABLE) for kind in CONTAINERS},
    "silence": (wav(np.zeros(RATE, np.float32)), Reason.AUDIO_SILENT),
    "too_short": (wav(TONE[:400]), Reason.AUDIO_TOO_SHORT),
    "clipped": (wav(np.sign(TONE), "PCM_16"), Reason.AUDIO_CLIPPED),
    "too_many_frames": (wav(np.tile(TONE, 5)), Reason.MEL_TOO_LONG),
}
# Metadata rows; `{n}` keeps ids apart.
ROWS: dict[str, tuple[bytes, Reason]] = {
    "one_field": (b"alone{n}", Reason.BAD_ROW),
    "no_id": (b"|text|text", Reason.BAD_ROW),
    "nul": (b"nul{n}\x00|text|text", Reason.BAD_ROW),
    "not_utf8": (b"latin{n}|caf\xe9|caf\xe9", Reason.BAD_ROW),
    "two_rows_by_cr": (b"first{n}|text\rsecond{n}|text", Reason.BAD_ROW),
    "two_rows_by_vt": (b"first{n}|text\vsecond{n}|text", Reason.BAD_ROW),
    "two_rows_by_nel": ("first{n}|text\x85second{n}|text".encode(), Reason.BAD_ROW),
    "two_rows_by_u2028": ("first{n}|text\u2028second{n}|text".encode(), Reason.BAD_ROW),
    "upward": (b"../../escape{n}|text|text", Reason.UNSAFE_ID),
    "absolute": (b"/etc/passwd{n}|text|text", Reason.UNSAFE_ID),
    "missing": (b"missing{n}|text|text", Reason.AUDIO_MISSING),
    "duplicate": (b"good|text|text", Reason.DUPLICATE_ID),
}
COUNT = 200


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Counter[str]]:
    root = tmp_path / "corpus"
    (root / "wavs").mkdir(parents=True)
    (root / "wavs" / "good.wav").write_bytes(wav(TONE))
    lines, expected = [b"good|text|text"], Counter[str]()
    makers: list[Callable[[int], tuple[bytes, Reason]]] = []
    for name, (content, reason) in FILES.items():

        def make_file(
            number: int, name: str = name, content: bytes = content, reason: Reason = reason
        ) -> tuple[bytes, Reason]:
            (root / "wavs" / f"{name}{number}.wav").write_bytes(content)
            return f"{name}{number}|text|text".encode(), reason

        makers.append(make_file)
    makers += [
        lambda number, row=row, reason=reason: (row.replace(b"{n}", str(number).encode()), reason)
        for row, reason in ROWS.values()
    ]

    def make_long(number: int) -> tuple[bytes, Reason]:
        (root / "wavs" / f"long{number}.wav").write_bytes(wav(TONE))
        return f"long{number}|{'text ' * 60}|{'text ' * 60}".encode(), Reason.TEXT_TOO_LONG

    def make_fifo(number: int) -> tuple[bytes, Reason]:
        os.mkfifo(root / "wavs" / f"fifo{number}.wav")
        return f"fifo{number}|text|text".encode(), Reason.AUDIO_UNREADABLE

    def make_silent_text(number: int) -> tuple[bytes, Reason]:
        (root / "wavs" / f"wordless{number}.wav").write_bytes(wav(TONE))
        return f"wordless{number}|  |  ".encode(), Reason.EMPTY_TEXT

    def make_folder(number: int) -> tuple[bytes, Reason]:
        (root / "wavs" / f"folder{number}.wav").mkdir()
        return f"folder{number}|text|text".encode(), Reason.AUDIO_UNREADABLE

    makers += [make_long, make_silent_text, make_fifo, make_folder]
    for number in range(COUNT):
        line, reason = makers[number % len(makers)](number)
        lines.append(line)
        expected[str(reason)] += 1
    (root / "metadata.csv").write_bytes(b"\n".join(lines) + b"\n")
    return root, expected


def test_each_hostile_row_is_rejected_for_its_reason_and_the_build_continues(
    corpus: tuple[Path, Counter[str]], tmp_path: Path
) -> None:
    root, expected = corpus
    words = ("preprocess", "--data", root, "--cache", tmp_path / "cache", "--json", "--set=limits.max_mel_frames=200")
    done = start_xtts(*words, timeout=600)
    assert done.returncode == 1, done.stderr  # over --max-rejected, and still complete
    report = json.loads(done.stdout)
    assert (report["read"], report["kept"], report["rejected"]) == (COUNT + 1, 1, COUNT)
    assert "Traceback" not in done.stderr
    assert Counter(line["reason"] for line in read_json_lines(tmp_path / "cache" / "rejected.jsonl")) == expected
    tolerant = start_xtts(*words, "--max-rejected", "100%", timeout=600)
    assert tolerant.returncode == 0, tolerant.stderr
