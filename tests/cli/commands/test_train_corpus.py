"""`xtts train --data`, which trains on a corpus without a cache, as a user types it."""

import json
from pathlib import Path

import pytest
import soundfile

from tests.cache.corpora import CONFIG, build, make_config, write_corpus
from tests.calling import start_xtts
from tests.data.sounds import tone
from tests.json_lines import read_json_lines

TINY = [
    *(
        "model.width=8",
        "model.heads=2",
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "model.flow_layers=1",
        "model.feedforward_width=8",
    ),
    *(
        "model.voice_latents=0",
        "model.reference_frames=8",
    ),
    *(
        "training.batch_size=4",
        "training.log_every=1",
        "training.jit_compile=false",
    ),
    "training.sample_every_evaluations=null",
]


def sets(settings: list[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read_json_lines(run / "metrics.jsonl") if line["split"] == "train"]


def test_training_without_a_cache_gives_the_losses_of_training_with_one(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "corpus")
    (data / "wavs" / "clip-003.wav").unlink()
    build(data, tmp_path / "cache", make_config())
    common = [*sets(TINY), "--steps", "6", "--json"]
    ends = [
        start_xtts("train", "--cache", tmp_path / "cache", "--output", tmp_path / "cached", *common),
        start_xtts("train", "--data", data, "--output", tmp_path / "native", *sets(CONFIG), *common),
    ]
    assert [end.returncode for end in ends] == [0, 0], ends[0].stderr + ends[1].stderr
    assert "ljspeech: read 40 = kept 39 + rejected 1 (audio_missing 1)" in ends[1].stderr
    assert losses(tmp_path / "native") == pytest.approx(losses(tmp_path / "cached"), rel=0.01)
    [rejected] = read_json_lines(tmp_path / "native" / "rejected.jsonl")
    assert rejected["reason"] == "audio_missing"
    traces = [json.loads(end.stdout)["traces"] for end in ends]
    assert traces[0] == traces[1]


def test_a_corpus_that_cannot_be_trained_on_is_exit_2_and_one_line_before_anything_is_made(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "corpus", 4)
    soundfile.write(data / "wavs" / "clip-002.wav", tone(0.4, 8_000), 8_000, "PCM_24")
    run = tmp_path / "run"
    for arguments, line in (
        ((), "clip-002.wav: found a WAV of 24 bits in format 0x1, expected 16-bit PCM WAV for --data"),
        (("--set", "audio.normalize=lufs"), "audio.normalize: found lufs, expected none, peak or rms with --data"),
        (("--cache", tmp_path), "--data and --cache: found both, expected one of them"),
    ):
        end = start_xtts("train", "--data", data, "--output", run, *sets(CONFIG), *arguments)
        assert end.returncode == 2
        assert end.stdout == ""
        assert end.stderr.count("\n") == 1
        assert line in end.stderr
        assert not run.exists()


def test_val_data_and_layout_need_data() -> None:
    end = start_xtts("train", "--val-data", "corpus")
    assert (end.returncode, end.stdout) == (2, "")
    assert "--val-data and --layout belong to --data" in end.stderr
