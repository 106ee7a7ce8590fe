"""How long a corpus's clips are before any is decoded: tokens by their texts, frames by the headers of their sound files."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.audio.lengths import mel_frame_count
from xtts_pipeline.cache.build.plan import CorpusIndex, PlannedRow
from xtts_pipeline.config.schema import AudioConfig, Config
from xtts_pipeline.errors import TextError
from xtts_pipeline.text.tokens import Tokenizer

HEADER_THREADS = 8


@dataclass(frozen=True)
class RowLengths:
    """A clip's lengths. Tokens are exact; `frames` are those without trimming, so `audio.trim_db` makes them fewer."""

    seconds: float
    frames: int
    tokens: int


def measure_rows(index: CorpusIndex, config: Config) -> list[RowLengths | None]:
    """Return the lengths of each row of the index; None where its text, its file or the file's header cannot be used."""
    tokenizer = Tokenizer(index.symbols, config.text.blank)

    def measure(row: PlannedRow) -> RowLengths | None:
        try:
            tokens = len(tokenizer.encode(row.text))
        except TextError:
            return None
        sound = _header_lengths(index.roots[row.corpus] / row.audio, config.audio)
        return None if sound is None else RowLengths(*sound, tokens)

    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        return list(pool.map(measure, index.rows))


def _header_lengths(path: Path, audio: AudioConfig) -> tuple[float, int] | None:
    """Return a clip's seconds and untrimmed frames by its header, or None if it is no regular file, has no header or no samples."""
    # Here: a rerun that writes nothing starts without the sound library.
    import soundfile

    try:
        if not path.is_file():  # a pipe would be waited on for ever
            return None
        with soundfile.SoundFile(path) as file:
            samples, rate = file.frames, file.samplerate
    except (soundfile.SoundFileError, OSError):
        return None
    if samples <= 0:
        return None
    return samples / rate, mel_frame_count(samples, rate, audio)
