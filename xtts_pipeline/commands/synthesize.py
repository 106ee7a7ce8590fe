"""`xtts synthesize`: a run and a text in, a sound file out."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xtts_pipeline.errors import OutputError
from xtts_pipeline.runtime import NativeLog


@dataclass(frozen=True)
class SynthesisReport:
    """What was written."""

    output: Path
    seconds: float
    mel_frames: int
    has_stopped: bool
    step: int

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return {**vars(self), "output": str(self.output)}

    def to_text(self) -> str:
        """Return the report for people."""
        ending = (
            "stopped by itself" if self.has_stopped else "cut by synthesis.max_frames_per_token or the longest mel; trained too little?"
        )
        return f"{self.output}: {self.seconds:.2f} s, {self.mel_frames} frames, {ending} (checkpoint of step {self.step})"


def synthesize(
    *,
    run: Path,
    text: str,
    output: Path,
    speaker: str | None,
    language: str | None,
    plot: Path | None,
    mel_output: Path | None,
    echo_native_log: bool,
) -> SynthesisReport:
    """Speak the text and write the sound; `plot` and `mel_output` where given."""
    with NativeLog(echo=echo_native_log):
        # Late: TensorFlow must not be imported before its log is redirected.
        from xtts_pipeline.audio.save import write_wave
        from xtts_pipeline.pictures import save_speech_picture
        from xtts_pipeline.synthesis import Synthesizer

        synthesizer = Synthesizer.load(run)
        spoken = synthesizer.synthesize(text, speaker, language)
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_wave(output, spoken.wave, spoken.sample_rate)
            if mel_output is not None:
                mel_output.parent.mkdir(parents=True, exist_ok=True)
                with mel_output.open("wb") as file:
                    np.save(file, spoken.mel)
            if plot is not None:
                symbols = synthesizer.symbols(spoken.tokens)
                save_speech_picture(plot, spoken.mel, spoken.seconds, spoken.text, spoken.attention, symbols, spoken.has_stopped)
        except OSError as error:
            raise OutputError(f"{error.filename or output}: cannot be written ({error.strerror}); choose another path") from None
    return SynthesisReport(output, spoken.seconds, len(spoken.mel), spoken.has_stopped, synthesizer.checkpoint.step)
