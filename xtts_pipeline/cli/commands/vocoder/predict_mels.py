"""`xtts predict-mels`: write a cache whose mels are predicted by a run, for the training of a vocoder."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from xtts_pipeline.cache.build.predicted import MelComparison
from xtts_pipeline.cache.format.contents import require_recorded_mels, require_waves
from xtts_pipeline.cache.format.manifest import MelOrigin, load_manifest
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.gate import with_tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import CACHE_FOLDER, clear_place, json_option, print_report
from xtts_pipeline.cli.progress import progress_bar
from xtts_pipeline.cli.run_options import cache_of_run, run_cache_option, run_option, synthesis_option
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.system.terminal import counted, duration_text, join_lines, shell_word
from xtts_pipeline.training.checkpoints.state import read_settings

# As in docs/vocoder.md, under "Matched to predicted mels".
_MATCHING = "--config vocoder-two-cores --steps 6000 --set training.learning_rate=1e-3 --set training.warmup_steps=100"


@dataclass(frozen=True)
class PredictionReport:
    """The cache that was written, and how far its mels are from those of the recordings."""

    run: Path
    cache: Path
    output: Path
    origin: MelOrigin
    comparisons: Mapping[str, MelComparison]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "run": str(self.run),
            "cache": str(self.cache),
            "output": str(self.output),
            **asdict(self.origin),
            "splits": {
                split: {
                    "clips": comparison.clips,
                    "frames": comparison.frames,
                    "mel_difference": round(comparison.mean_difference, 4),
                }
                for split, comparison in self.comparisons.items()
            },
            "seconds": round(self.seconds, 3),
        }

    def to_text(self) -> str:
        """Return the report for people."""
        origin = self.origin
        lines = [
            f"cache          {self.output}",
            f"mels           {self.run}, step {origin.step}",
            f"settings       flow_steps={origin.flow_steps}, guidance={origin.guidance:g}",
        ]
        lines += [
            f"{split:<15}{counted(each.clips, 'clip')}, {each.frames} frames, "
            f"{each.mean_difference:.3f} nats from the recordings"
            for split, each in self.comparisons.items()
        ]
        lines.append(f"time           {duration_text(self.seconds, 1)}")
        output = shell_word(self.output)
        command = f"xtts train-vocoder --init-from VOCODER --cache {output} --output runs/matched"
        lines.append(f"next           {command} {_MATCHING}")
        return join_lines(lines)


@click.command("predict-mels", cls=DocumentedCommand, example="xtts predict-mels --run runs/first --output predicted/")
@run_option
@run_cache_option
@click.option("--output", type=CACHE_FOLDER, required=True, help="New or empty folder for the cache that is written.")
@synthesis_option
@json_option
@click.pass_obj
def predict_mels(
    debug: bool, /, run: Path, cache: Path | None, output: Path, overrides: Sequence[str], as_json: bool
) -> None:
    """Write a cache with the mels that a run predicts.

    Each mel is what the run hands to the vocoder, with the durations, energies and pitches of the recording. Waves and
    texts stay the same. The folder appears when all is written: a command that was stopped begins again.
    """
    started = time.perf_counter()
    cache = cache or cache_of_run(run)
    check_apart(output, cache)
    manifest = load_manifest(cache)
    require_recorded_mels(cache, manifest)
    require_waves(cache, manifest)
    require_whole(cache)
    read_settings(run, "acoustic")  # another network or cut weights: refused before TensorFlow starts
    output = clear_place(output)
    with progress_bar(manifest.counts.kept, title="predict") as bar:
        origin, comparisons = with_tensorflow(
            "xtts_pipeline.inference.predicted_mels:predict_mels",
            *(run, overrides, cache, manifest, output, bar.update),
            echo=debug,
        )
    print_report(PredictionReport(run, cache, output, origin, comparisons, time.perf_counter() - started), as_json)
