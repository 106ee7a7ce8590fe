"""Pictures: what they say, in which size, and that no text or place can break them."""

import io
from pathlib import Path

import librosa
import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import OutputError
from xtts_pipeline.plots import (
    encode_comparison,
    encode_mel,
    hertz_ticks,
    save_histograms,
    save_speech_picture,
)

# A frame lasts 0.02 s.
AUDIO = AudioConfig(sample_rate=24_000, hop_samples=480, max_hz=8_000)

MEL = np.linspace(-11.0, 1.0, 50 * 80, dtype=np.float32).reshape(50, 80)
# In frames, of the tokens of MEL.
DURATIONS = np.array([10.0, 15.0, 25.0], np.float32)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return the figures that were saved, each still open to questions."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: object, **options: object) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


@pytest.mark.parametrize("seconds", [0.2, 5.0, 60.0])
def test_a_picture_of_any_length_fits_a_screen(tmp_path: Path, seconds: float) -> None:
    save_speech_picture(tmp_path / "mel.png", np.resize(MEL, (round(50 * seconds), 80)), AUDIO, "a title " * 30)

    height, width = matplotlib.image.imread(tmp_path / "mel.png").shape[:2]
    assert 700 <= width <= 1400
    assert height >= 400


def test_every_mel_has_one_colour_scale_and_its_axis_in_hz(tmp_path: Path, drawn: list[Figure]) -> None:
    save_speech_picture(tmp_path / "mel.png", MEL, AUDIO, "title")

    axes = drawn[0].axes[0]
    assert axes.get_ylim() == (-0.5, 79.5)
    assert axes.images[0].get_clim() == pytest.approx((np.log(AUDIO.floor), 2.0))
    assert axes.get_ylabel() == "Hz"
    assert [label.get_text() for label in axes.get_yticklabels()] == [label for label, _ in hertz_ticks(AUDIO)]


def test_tokens_end_where_their_durations_say(tmp_path: Path, drawn: list[Figure]) -> None:
    save_speech_picture(tmp_path / "speech.png", MEL, AUDIO, "title", DURATIONS, ["a", " ", "<end>"])

    mel_axes, axes, _ = drawn[0].axes
    ends = [path.vertices[0, 0] for path in axes.collections[0].get_paths()]
    assert ends == pytest.approx([0.2, 0.5, 1.0])
    assert [(text.get_text(), round(text.get_position()[0], 3)) for text in axes.texts] == [
        ("a", 0.1),
        ("␣", 0.35),
    ]
    assert axes.get_xlim() == mel_axes.get_xlim() == (0.0, 1.0)


def test_the_symbols_of_a_long_text_are_left_out(tmp_path: Path, drawn: list[Figure]) -> None:
    save_speech_picture(tmp_path / "speech.png", MEL, AUDIO, "title", np.full(500, 0.1), ["a"] * 500)

    assert len(drawn[0].axes[1].texts) == 0


@pytest.mark.parametrize(("has_stopped", "title"), [(True, "abc"), (False, "abc (cut, no stop)")])
def test_speech_that_was_cut_says_so(tmp_path: Path, drawn: list[Figure], has_stopped: bool, title: str) -> None:
    save_speech_picture(tmp_path / "speech.png", MEL, AUDIO, "abc", DURATIONS, ["a", "b", "c"], has_stopped)

    assert drawn[0].axes[0].get_title() == title


def test_a_text_is_never_read_as_a_formula(tmp_path: Path) -> None:
    save_speech_picture(tmp_path / "speech.png", MEL, AUDIO, r"$\nonsense$", DURATIONS, ["$", "^", "$_$"])

    assert (tmp_path / "speech.png").read_bytes().startswith(b"\x89PNG")


def test_histograms_mark_what_they_are_handed(tmp_path: Path, drawn: list[Figure]) -> None:
    marks, limits = {"frames": {"p50": 2.0, "p99": 9.25}}, {"frames": {"max_mel_frames": 10, "far": 600}}
    save_histograms(tmp_path / "lengths.png", "corpus: 4 $", {"frames": np.array([1, 2, 2, 9])}, marks, limits)

    axes = drawn[0].axes[0]
    assert drawn[0].get_suptitle() == "corpus: 4 $"
    assert [(line.get_label(), line.get_xdata()[0]) for line in axes.lines] == [  # type: ignore[index]
        ("p50 = 2", 2.0),
        ("p99 = 9.25", 9.25),
        ("max_mel_frames = 10", 10),
        ("far = 600, off the axis", 600),
    ]
    assert 10 <= axes.get_xlim()[1] < 20
    # Whole numbers lie in the middle of their bins.
    assert {bar.get_x() % 1 for bar in axes.patches} == {0.5}
    assert all(float(tick).is_integer() for tick in (*axes.get_xticks(), *axes.get_yticks()))
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y1
    # All of it is on the picture, and takes no room from the clips.
    assert legend.get_window_extent().x0 >= 0
    assert axes.get_position().width > 0.8


@pytest.mark.parametrize(("clips", "bins"), [(1, 2), (24, 10), (900, 60), (13_100, 60)])
def test_few_clips_have_few_bins(tmp_path: Path, drawn: list[Figure], clips: int, bins: int) -> None:
    lengths = {"seconds": np.linspace(1.0, 9.0, clips)}
    save_histograms(tmp_path / "lengths.png", "title", lengths, {"seconds": {"p50": 5.0}}, {})

    assert len(drawn[0].axes[0].patches) == bins


@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), ("", b"\x89PNG")])
def test_the_suffix_names_the_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"lengths{suffix}"
    save_histograms(path, "title", {"seconds": np.ones(3)}, {"seconds": {"p50": 1.0}}, {})
    assert path.read_bytes().startswith(start)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OutputError, match=r"file/mel\.png: cannot be written"):
        save_speech_picture(tmp_path / "file" / "mel.png", MEL, AUDIO, "title")
    with pytest.raises(OutputError, match="cannot be written"):
        save_histograms(tmp_path, "title", {"frames": np.array([1])}, {"frames": {"p50": 1.0}}, {})


def test_spoken_and_true_mels_share_colours_and_time(drawn: list[Figure]) -> None:
    png = encode_comparison(MEL, MEL[:25] + 3.0, AUDIO, "spoken (cut)", DURATIONS, ["<begin>", "$a$", "<end>"])

    assert png.startswith(b"\x89PNG")
    true_axes, spoken_axes, token_axes = drawn[0].axes[:3]
    assert (true_axes.get_title(), spoken_axes.get_title()) == ("true", "spoken (cut)")
    assert true_axes.images[0].get_clim() == spoken_axes.images[0].get_clim() == pytest.approx((np.log(1e-5), 2.0))
    assert {axes.get_xlim() for axes in (true_axes, spoken_axes, token_axes)} == {(0.0, 1.0)}
    assert spoken_axes.images[0].get_extent()[1] == pytest.approx(0.5)


def test_a_tick_stands_at_the_filter_centred_on_its_frequency() -> None:
    centres = librosa.mel_frequencies(AUDIO.mel_bins + 2, fmin=AUDIO.min_hz, fmax=AUDIO.max_hz)[1:-1]
    ticks = hertz_ticks(AUDIO)

    assert [label for label, _ in ticks] == ["250", "500", "1k", "2k", "4k"]
    hertz = [float(label.replace("k", "000")) for label, _ in ticks]
    np.testing.assert_allclose(np.interp([place for _, place in ticks], range(80), centres), hertz, rtol=1e-3)


def test_a_mel_without_round_frequencies_has_no_ticks() -> None:
    assert hertz_ticks(AudioConfig(min_hz=300, max_hz=400)) == []


def test_the_small_picture_of_a_mel_has_the_colours_of_the_large_one() -> None:
    mel = np.full((3, 2), np.log(AUDIO.floor), np.float32)
    mel[0, 0], mel[1, 0], mel[2, 1] = 2.0, 9.0, np.nan
    shown = matplotlib.image.imread(io.BytesIO(encode_mel(mel, AUDIO)))[:, :, :3]

    magma = matplotlib.colormaps["magma"]
    assert shown.shape == (2, 3, 3)
    np.testing.assert_allclose(shown[1], [magma(1.0)[:3], magma(1.0)[:3], magma(0.0)[:3]], atol=0.005)
    scale = encode_mel(np.linspace(np.log(AUDIO.floor), 2.0, 256)[:, None], AUDIO)
    between = matplotlib.image.imread(io.BytesIO(scale))[0, :, :3]
    np.testing.assert_allclose(between, magma(np.linspace(0, 1, 256))[:, :3], atol=0.02)
