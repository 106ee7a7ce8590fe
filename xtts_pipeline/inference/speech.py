"""The speech of a text: whole, in pieces, and as a stream of its wave."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from xtts_pipeline.inference.guard import NO_FAULTS, Faults
from xtts_pipeline.text.fallback import TextChanges
from xtts_pipeline.vocoder.streaming import open_stream

if TYPE_CHECKING:
    from xtts_pipeline.inference.synthesizer import Synthesizer


@dataclass(frozen=True)
class SpokenText:
    """The speech of one text.

    tokens int32 [S]; mel float32 [T, mel_bins], natural log; durations float32 [S], frames of each token,
    pauses counted with the token before them; wave float32 [samples].

    has_stopped is False if a length limit ended the text or one of its pieces. The tokens of several pieces are
    concatenated. text_changes counts the characters that the checkpoint lacks, as (character, replacement); the
    replacement of a dropped one is empty. attempts: how often a piece was decoded, the most of all pieces. faults: the
    words that are wrong in the attempts that were kept, of all pieces.
    """

    text: str
    tokens: np.ndarray
    mel: np.ndarray
    durations: np.ndarray
    wave: np.ndarray
    sample_rate: int
    has_stopped: bool
    text_changes: TextChanges = field(default_factory=TextChanges)
    attempts: int = 1
    faults: Faults = NO_FAULTS

    @property
    def seconds(self) -> float:
        """Duration of the wave."""
        return len(self.wave) / self.sample_rate


class SpokenPiece(NamedTuple):
    """The speech of a piece or of one of its chunks: mel [T, mel_bins].

    durations float32 [S]: the frames of each token, planned for the whole piece. has_stopped is False if the frame
    limit ended it. attempts and faults are those of SpokenText; the first chunk has the faults that are known before
    any frame.
    """

    mel: np.ndarray
    has_stopped: bool
    durations: np.ndarray
    faults: Faults = NO_FAULTS
    attempts: int = 1


def deal(items: Iterator[tuple[int, SpokenPiece | int | None]], rows: int) -> list[Iterator[SpokenPiece | int]]:
    """Return the items of each row until its None; the row that first needs its next one reads for all."""
    unread: list[deque[SpokenPiece | int | None]] = [deque() for _ in range(rows)]

    def read(own: deque[SpokenPiece | int | None]) -> Iterator[SpokenPiece | int]:
        while True:
            while not own:
                # A RuntimeError, if an error has ended the items for another row.
                row, item = next(items)
                unread[row].append(item)
            item = own.popleft()
            if item is None:
                return
            yield item

    return [read(own) for own in unread]


class SpeechStream(Iterator[np.ndarray]):
    """Yields the wave of a text in parts, float32 [samples], each as soon as it is final.

    mel_frames counts the frames so far; has_stopped is False once a length limit has ended a piece; text_changes is
    that of SpokenText; faults are the words so far whose planned durations are wrong, known before they sound.
    """

    def __init__(
        self, pieces: Iterator[SpokenPiece | int], text_changes: TextChanges, synthesizer: "Synthesizer"
    ) -> None:
        self.sample_rate = synthesizer.checkpoint.config.audio.sample_rate
        self.mel_frames = 0
        self.has_stopped = True
        self.text_changes = text_changes
        self.faults = NO_FAULTS
        self._waves = self._vocode(pieces, synthesizer)

    def __next__(self) -> np.ndarray:
        return next(self._waves)

    def _vocode(self, pieces: Iterator[SpokenPiece | int], synthesizer: "Synthesizer") -> Iterator[np.ndarray]:
        vocoder = open_stream(synthesizer.vocoder)
        for piece in pieces:
            if isinstance(piece, int):
                mel = synthesizer.silence(piece)
            else:
                mel = piece.mel
                self.has_stopped &= piece.has_stopped
                self.faults = self.faults.plus(piece.faults)
            self.mel_frames += len(mel)
            wave = vocoder.push(mel)
            if wave.size:
                yield wave
        wave = vocoder.finish()
        if wave.size:
            yield wave
