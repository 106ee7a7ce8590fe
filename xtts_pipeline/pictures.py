"""Pictures of mels, attention and lengths, as PNG files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

FIGURE_INCHES_PER_SECOND = 2.5


def save_speech_picture(
    path: Path, mel: np.ndarray, seconds: float, title: str, attention: np.ndarray | None = None, symbols: Sequence[str] = ()
) -> None:
    """Write a picture of a mel [T, mel_bins] and, where given, its attention [F, S] to the symbols below it."""
    # Here: matplotlib costs half a second, and most commands draw nothing.
    from matplotlib.figure import Figure

    rows = 1 if attention is None else 2
    figure = Figure(figsize=(min(max(6.0, seconds * FIGURE_INCHES_PER_SECOND), 24.0), 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
    image = axes[0].imshow(
        mel.T, origin="lower", aspect="auto", interpolation="nearest", extent=(0.0, seconds, 0, mel.shape[1]), cmap="magma"
    )
    axes[0].set(title=title, xlabel="seconds", ylabel="mel bin")
    figure.colorbar(image, ax=axes[0], label="natural log magnitude")
    if attention is not None:
        image = axes[1].imshow(
            attention.T,
            origin="lower",
            aspect="auto",
            interpolation="nearest",
            extent=(0.0, seconds, -0.5, attention.shape[1] - 0.5),
            vmin=0.0,
            vmax=1.0,
        )
        axes[1].set(title="attention to the text", xlabel="seconds", ylabel="token")
        if len(symbols) <= 80:
            axes[1].set_yticks(range(len(symbols)), symbols, fontsize=6)
        figure.colorbar(image, ax=axes[1], label="weight")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def save_histograms(path: Path, measures: Mapping[str, np.ndarray]) -> None:
    """Write one histogram a measure, with its median and 99th percentile."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.4 * len(measures)), layout="constrained")
    rows = figure.subplots(len(measures), 1, squeeze=False)[:, 0]
    for axes, (name, values) in zip(rows, measures.items(), strict=True):
        axes.hist(values, bins=60, color="tab:blue")
        for percent, style in ((50, "-"), (99, "--")):
            at = float(np.percentile(values, percent))
            axes.axvline(at, color="tab:red", linestyle=style, label=f"p{percent} = {at:.4g}")
        axes.set(xlabel=name.replace("_", " "), ylabel="clips")
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
