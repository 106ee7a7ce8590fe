"""`xtts evaluate` on a cache and a corpus, with a speaker that returns the cache's own mels in place of a network."""

import itertools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.cache.corpora import build, make_config, write_clip, write_corpus
from tests.cli.commands.parrot import CONFIG, Parrot
from tests.json_lines import read_json_lines
from xtts_pipeline.cache.format.manifest import MelOrigin, fingerprint, load_manifest
from xtts_pipeline.cli.commands import evaluate as command
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import CacheError, ConfigError, CorpusError, OutputError
from xtts_pipeline.evaluation import split
from xtts_pipeline.evaluation.ground_truth import read_true_mels, split_entries
from xtts_pipeline.evaluation.judges import JudgedSound
from xtts_pipeline.inference.guard import Faults
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.training.checkpoints.run_folder import write_cache_path


@dataclass(frozen=True)
class Work:
    """A corpus and its cache."""

    data: Path
    cache: Path


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    root = tmp_path_factory.mktemp("evaluate")
    build(write_corpus(root / "data"), root / "cache", CONFIG)
    return Work(root / "data", root / "cache")


@pytest.fixture
def evaluate(monkeypatch: pytest.MonkeyPatch, work: Work, tmp_path: Path) -> Callable[..., command.EvaluationReport]:
    """Return the command with defaults and a given `speaker`."""

    def run(speaker: Parrot | None = None, **options: Any) -> command.EvaluationReport:
        monkeypatch.setattr(Synthesizer, "load", lambda _run, _overrides, **_: speaker or Parrot(work.cache))
        defaults: dict[str, Any] = {
            "run": Path("run"),
            "cache": work.cache,
            "split": "val",
            "data": None,
            "output": tmp_path / "out",
            "limit": 2,
            "references": (),
            "vocoder": None,
            "overrides": (),
            "phoneme_error_rate": False,
            "judges": False,
            "jobs": 1,
            "echo": False,
        }
        return command.evaluate_run(**{**defaults, **options})

    return run


def figures_of(report: command.EvaluationReport) -> dict[str, Any]:
    figures = report.to_json()["figures"]
    assert isinstance(figures, dict)
    return figures


def test_speech_equal_to_the_ground_truth_has_no_error(evaluate: Callable[..., command.EvaluationReport], work: Work):
    parrot = Parrot(work.cache)

    figures = figures_of(evaluate(parrot))

    worst = {name: summary["worst"] for name, summary in figures.items()}
    assert worst["mel_cepstral_distortion_db"] == 0.0
    assert worst["voicing_error"] == 0.0
    assert worst["duration_ratio"] == 1.0
    assert worst["skipped_words"] == worst["repeated_words"] == 0


def test_two_processes_find_the_same_as_one(
    evaluate: Callable[..., command.EvaluationReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(split, "LEAST_OF_PROCESS", 1)
    one, two = (evaluate(jobs=jobs, output=tmp_path / f"jobs-{jobs}") for jobs in (1, 2))

    def figures(report: command.EvaluationReport) -> list[dict[str, object]]:
        lines = [utterance.to_json() for utterance in report.utterances]
        times = ("synthesis_seconds", "real_time_factor")
        return [{name: value for name, value in line.items() if name not in times} for line in lines]

    assert len(figures(one)) == 2
    assert figures(two) == figures(one)
    for path in (tmp_path / "jobs-1").glob("0*"):
        assert (tmp_path / "jobs-2" / path.name).read_bytes() == path.read_bytes()


def test_the_cache_of_the_run_is_the_default(
    evaluate: Callable[..., command.EvaluationReport], work: Work, tmp_path: Path
):
    (tmp_path / "run").mkdir()
    write_cache_path(tmp_path / "run", work.cache)

    assert evaluate(run=tmp_path / "run", cache=None, limit=1).cache == work.cache


def test_raw_texts_are_spoken_once_each_after_one_warm_up(
    evaluate: Callable[..., command.EvaluationReport], work: Work
):
    parrot = Parrot(work.cache)

    report = evaluate(parrot)

    texts = [utterance.entry.raw_text for utterance in report.utterances]
    assert all(
        "clip" in text and text != utterance.entry.text
        for text, utterance in zip(texts, report.utterances, strict=True)
    )
    assert parrot.asked == [(text, "default", "en") for text in (texts[0], *texts)]


def test_every_text_is_spoken_in_the_voice_of_the_references_and_in_no_speakers(
    evaluate: Callable[..., command.EvaluationReport], work: Work
):
    parrot, references = Parrot(work.cache), (Path("one.wav"), Path("two.wav"))

    report = evaluate(parrot, references=references, overrides=["synthesis.flow_steps=2"])

    assert parrot.references == [references] * 3  # to warm up, and both utterances
    assert {speaker for _, speaker, _ in parrot.asked} == {None}
    assert report.to_json()["references"] == ["one.wav", "two.wav"]
    assert report.to_json()["overrides"] == ["synthesis.flow_steps=2"]
    assert "in the voice of one.wav, two.wav, with synthesis.flow_steps=2," in report.to_text()


def test_the_folder_holds_sounds_pictures_rows_and_a_page(
    evaluate: Callable[..., command.EvaluationReport], tmp_path: Path
):
    report = evaluate()

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *(f"{number:04d}-{name}" for number in (0, 1) for name in ("copy.wav", "spoken.png", "spoken.wav", "true.png")),
        "index.html",
        "report.json",
        "utterances.jsonl",
    ]
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == json.loads(json.dumps(report.to_json()))
    rows = read_json_lines(tmp_path / "out" / "utterances.jsonl")
    assert [row["id"] for row in rows] == [utterance.entry.id for utterance in report.utterances]
    assert rows[0]["sounds"] == {"spoken": "0000-spoken.wav", "copy": "0000-copy.wav"}
    page = (tmp_path / "out" / "index.html").read_text()
    assert all(name in page for name in ("0001-spoken.wav", "0001-true.png", rows[1]["text"]))
    assert "compared with copy synthesis" in report.to_text()


def test_the_recordings_may_lie_apart_from_their_table(
    evaluate: Callable[..., command.EvaluationReport], tmp_path: Path
):
    sounds, data, cache = write_corpus(tmp_path / "sounds"), tmp_path / "texts" / "manifest.csv", tmp_path / "cache"
    data.parent.mkdir()
    rows = (f"wavs/clip-{number:03d}.wav|this is clip {number}\n" for number in range(40))
    data.write_text("".join(["audio|text\n", *rows]))
    build(data, cache, CONFIG, reading=ReadOptions(audio_dir=str(sounds)))

    report = evaluate(Parrot(cache), cache=cache, data=data)

    assert report.to_json()["truth"] == "corpus"


def test_with_the_corpus_speech_is_compared_with_its_recordings(
    evaluate: Callable[..., command.EvaluationReport], work: Work, tmp_path: Path
):
    report = evaluate(data=work.data)

    entry = report.utterances[0].entry
    true, rate = soundfile.read(tmp_path / "out" / "0000-true.wav")
    clip, _ = soundfile.read(work.data / entry.source.path)
    assert rate == 8_000
    assert len(true) == (entry.frames - 1) * 128
    np.testing.assert_allclose(true, clip[: len(true)], atol=1e-4)
    assert (tmp_path / "out" / "0000-copy.wav").exists()
    assert "compared with the corpus" in report.to_text()
    assert report.to_json()["truth"] == "corpus"


def test_the_waves_of_the_cache_serve_as_recordings(
    evaluate: Callable[..., command.EvaluationReport], work: Work, tmp_path: Path
):
    cache = tmp_path / "cache"
    build(
        work.data, cache, make_config("audio.mel_bins=20", "cache.store_waves=true", "data.buckets=[[24,26],[40,80]]")
    )

    report = evaluate(Parrot(cache), cache=cache, limit=3)
    of_corpus = evaluate(Parrot(cache), cache=cache, limit=3, data=work.data, output=tmp_path / "of_corpus")

    assert "compared with the waves of the cache" in report.to_text()
    assert (report.to_json()["truth"], of_corpus.to_json()["truth"]) == ("cache", "corpus")
    for number in range(3):
        stored, original = (
            soundfile.read(folder / f"{number:04d}-true.wav", dtype="int16")[0]
            for folder in (tmp_path / "out", tmp_path / "of_corpus")
        )
        np.testing.assert_allclose(stored, original, atol=1)

    entry = report.utterances[0].entry
    (cache / f"wave-{entry.shard}").write_bytes(b"")
    with pytest.raises(CacheError, match=f"wave-{entry.shard}: record {entry.position} is not {entry.id}, as"):
        evaluate(Parrot(cache), cache=cache, output=tmp_path / "damaged")


def test_the_true_wave_begins_where_its_trimmed_mel_does(
    evaluate: Callable[..., command.EvaluationReport], tmp_path: Path
):
    data, cache = write_corpus(tmp_path / "data", 12), tmp_path / "cache"
    quiet = np.zeros(2_560)
    for path in (data / "wavs").iterdir():
        sound, rate = soundfile.read(path)
        soundfile.write(path, np.concatenate([quiet, sound, quiet]), rate, "PCM_16")
    build(data, cache, make_config("audio.mel_bins=20", "audio.trim_db=30", "audio.trim_margin_seconds=0"))

    report = evaluate(Parrot(cache), cache=cache, data=data, limit=1)

    true, _ = soundfile.read(tmp_path / "out" / "0000-true.wav")
    clip, _ = soundfile.read(data / report.utterances[0].entry.source.path)
    assert len(true) < len(clip) - 2 * len(quiet) + 512
    assert np.abs(true[256:512]).max() > 0.4
    assert np.abs(true[-512:-256]).max() > 0.4


def test_missing_stops_and_skipped_words_are_counted(evaluate: Callable[..., command.EvaluationReport], work: Work):
    def spoil(spoken: SpokenText) -> SpokenText:
        return replace(spoken, faults=Faults(skipped_words=6), has_stopped=False)

    report = evaluate(Parrot(work.cache, spoil))

    assert report.to_json()["stop_misses"] == 2
    assert "stop           0 of 2 by themselves" in report.to_text()
    assert figures_of(report)["skipped_words"]["worst"] == 6


def test_phoneme_errors_are_those_of_a_recogniser(
    evaluate: Callable[..., command.EvaluationReport], work: Work, monkeypatch: pytest.MonkeyPatch
):
    class Ear:
        def __init__(self) -> None:
            # In turn: the speech, the true clip, copy synthesis.
            self.answers = itertools.cycle(["abcd", "abxd", "abcd"])

        def transcribe(self, _wave: np.ndarray, sample_rate: int) -> list[str]:
            assert sample_rate == 8_000
            return list(next(self.answers))

    monkeypatch.setattr(command, "Recogniser", Ear)

    report = evaluate(data=work.data, phoneme_error_rate=True)

    assert report.to_json()["phoneme_error_rates"] == {"to_truth": 0.25, "to_copy": 0.0, "of_copy": 0.25}
    assert "PER to truth   0.250 over 8 phonemes" in report.to_text()


@pytest.mark.parametrize(
    ("option", "package", "said"),
    [
        ("phoneme_error_rate", "hama", "hama is not installed"),
        ("judges", "speechmos.dnsmos", r"--judges: speechmos\.dnsmos is not installed"),
    ],
)
def test_figures_without_their_extra_are_refused_before_anything_is_loaded(
    evaluate: Callable[..., command.EvaluationReport],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    package: str,
    said: str,
):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(command, "tensorflow", None)

    with pytest.raises(ConfigError, match=said):
        evaluate(**{option: True})
    assert not (tmp_path / "out").exists()


class Panel:
    """Judges that give each sound the figures of its label and of its length."""

    missing = ("pesq",)

    def judge(self, waves: Mapping[str, np.ndarray], sample_rate: int) -> dict[str, JudgedSound]:
        assert sample_rate == 8_000
        places = {"true": 4.0, "copy": 3.0, "copy_griffin_lim": 2.0, "spoken": 1.0}
        return {
            label: JudgedSound(places[label], len(wave) / 1_000, stoi=places[label] / 4 if "copy" in label else None)
            for label, wave in waves.items()
        }


def test_judges_hear_recordings_both_copies_and_speech(
    evaluate: Callable[..., command.EvaluationReport],
    work: Work,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(command, "Judges", Panel)
    parrot = Parrot(work.cache)
    griffin_lim = parrot.vocoder
    parrot.vocoder = lambda mel: -griffin_lim(mel)

    report = evaluate(parrot, data=work.data, judges=True)

    judged: Any = report.to_json()["judges"]
    assert {label: figures["dnsmos_p808"] for label, figures in judged.items()} == {
        "spoken": 1.0,
        "true": 4.0,
        "copy": 3.0,
        "copy_griffin_lim": 2.0,
    }
    assert figures_of(report)["dnsmos_p808"]["worst"] == 1.0
    assert figures_of(report)["stoi_of_copy"]["median"] == 0.75
    assert [line.split() for line in report.to_text().splitlines() if line.startswith(("judges", "rec", "Grif"))] == [
        ["judges,", "mean", "P.808", "overall", "STOI"],
        ["recordings", "4.00", f"{judged['true']['dnsmos_overall']:.2f}", "-"],
        ["Griffin-Lim", "2.00", f"{judged['copy_griffin_lim']['dnsmos_overall']:.2f}", "0.500"],
    ]
    assert "warning: --judges without pesq: not installed" in capsys.readouterr().err
    first = read_json_lines(tmp_path / "out" / "utterances.jsonl")[0]
    assert first["judges"]["copy"]["stoi"] == 0.75
    copied, by_griffin_lim = (
        soundfile.read(tmp_path / "out" / first["sounds"][label], dtype="int16")[0]
        for label in ("copy", "copy_griffin_lim")
    )
    assert np.abs(copied).max() > 1_000
    assert not np.array_equal(copied, by_griffin_lim)


def test_a_corpus_that_is_not_there_is_refused_by_its_name_before_anything_is_loaded(
    evaluate: Callable[..., command.EvaluationReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(command, "tensorflow", None)

    with pytest.raises(CorpusError, match=r"/nowhere: no such folder; name the corpus that the cache was made from"):
        evaluate(data=tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()


def test_another_cache_is_refused_with_what_differs(
    evaluate: Callable[..., command.EvaluationReport], work: Work, tmp_path: Path
):
    build(write_corpus(tmp_path / "data", 12), tmp_path / "cache", make_config("audio.mel_bins=16", "audio.min_hz=50"))

    with pytest.raises(
        CacheError, match=r"not a cache for run.*: audio\.mel_bins: the cache has 16, the config 20; audio\.min_hz: "
    ):
        evaluate(Parrot(work.cache), cache=tmp_path / "cache")
    assert not (tmp_path / "out").exists()


def test_symbols_and_speakers_that_the_run_does_not_know_are_named(
    evaluate: Callable[..., command.EvaluationReport], work: Work
):
    parrot = Parrot(work.cache)
    parrot.checkpoint.cache = replace(
        parrot.checkpoint.cache, symbols=parrot.checkpoint.cache.symbols[1:], speakers=("anna",)
    )

    with pytest.raises(CacheError, match="symbols: the run does not know ' '; speakers: the run does not know default"):
        evaluate(parrot)


def test_a_part_of_the_cache_with_fewer_symbols_and_speakers_is_evaluated(
    evaluate: Callable[..., command.EvaluationReport], work: Work
):
    parrot = Parrot(work.cache)
    known = parrot.checkpoint.cache
    parrot.checkpoint.cache = replace(
        known, symbols=("#", *known.symbols), speakers=("anna", *known.speakers), fingerprint="0" * 64
    )

    assert len(evaluate(parrot).utterances) == 2


def test_a_cache_of_predicted_mels_is_refused(
    evaluate: Callable[..., command.EvaluationReport], work: Work, monkeypatch: pytest.MonkeyPatch
):
    manifest, origin = load_manifest(work.cache), MelOrigin("0" * 64, 7, 4, 3.0)
    predicted = replace(manifest, mels_from=origin, fingerprint=fingerprint(manifest, manifest.symbols, origin))
    monkeypatch.setattr(command, "load_manifest", lambda _cache: predicted)

    with pytest.raises(CacheError, match=r"mels that a model predicted \(step 7, .*; name another cache"):
        evaluate()


def test_a_split_without_an_utterance_is_an_error_that_says_what_there_is(
    evaluate: Callable[..., command.EvaluationReport],
):
    with pytest.raises(CacheError, match=r"no utterance in the test split, it holds train \d+, val \d+, test 0"):
        evaluate(split="test")


def test_a_corpus_that_the_cache_was_not_made_from_is_refused(
    evaluate: Callable[..., command.EvaluationReport], work: Work, tmp_path: Path
):
    entry = split_entries(work.cache, load_manifest(work.cache), "val", 1)[0]

    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=f"{entry.source.path}: cannot be read"):
        evaluate(data=tmp_path / "empty")
    write_clip(tmp_path / "other", Path(entry.source.path).stem, hz=333)
    with pytest.raises(CorpusError, match=f"not the file that {entry.id} was made from"):
        evaluate(data=tmp_path / "other", output=tmp_path / "out2")


def test_an_output_folder_that_is_not_empty_is_refused(
    evaluate: Callable[..., command.EvaluationReport], tmp_path: Path
):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()

    with pytest.raises(OutputError, match="is not empty"):
        evaluate()
    with pytest.raises(OutputError, match="cannot be written"):
        evaluate(output=tmp_path / "out" / "mine.txt")


def test_a_cache_in_buckets_gives_the_same_utterances_and_mels(work: Work, tmp_path: Path):
    """The first utterances of a split are a fair sample: they do not all come from the bucket of the shortest clips."""
    bucketed = tmp_path / "cache"
    build(work.data, bucketed, make_config("audio.mel_bins=20", "data.buckets=[[24,22],[32,28],[40,80]]"))

    def first_mels(cache: Path, limit: int | None) -> dict[str, bytes]:
        manifest = load_manifest(cache)
        entries = split_entries(cache, manifest, "train", limit)
        return {entry.id: mel.tobytes() for entry, mel in read_true_mels(cache, manifest, entries)}

    assert len({entry.shard for entry in split_entries(bucketed, load_manifest(bucketed), "train", None)}) > 3
    for limit in (7, None):
        assert first_mels(bucketed, limit) == first_mels(work.cache, limit)
