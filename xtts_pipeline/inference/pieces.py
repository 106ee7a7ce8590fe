"""Split a text into pieces of tokens that the network can decode at once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xtts_pipeline.errors import Reason, TextError
from xtts_pipeline.text.fallback import TextChanges, fit_to_symbols
from xtts_pipeline.text.sentences import pause_seconds, split_sentences
from xtts_pipeline.text.symbols import prepare_texts
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.state import SavedState

if TYPE_CHECKING:
    # Importing it starts TensorFlow, which texts can be checked without.
    from xtts_pipeline.training.checkpoints.files import Checkpoint

QUOTED_CHARACTERS = 40
REMEDIES = {
    Reason.EMPTY_TEXT: "give words in the letters of the run",
    Reason.UNKNOWN_SYMBOL: "leave out --strict-text, or train on a corpus that has it",
    Reason.PHONEMIZER_FAILED: "check the language",
}


@dataclass(frozen=True)
class Piece:
    """A part of a text that is decoded at once: tokens int32 [S], frame limit, and silent decoder steps after it."""

    tokens: np.ndarray
    max_frames: int
    pause_steps: int

    def silent_frames(self, frames: int, frames_per_step: int) -> int:
        """Return the silent frames after `frames` frames of the piece: the rest of its last step, then the pause."""
        return -frames % frames_per_step + self.pause_steps * frames_per_step


@dataclass(frozen=True)
class SplitText:
    """The pieces of a text, and the characters of it that the checkpoint lacks, as changed by `fit_to_symbols`."""

    pieces: list[Piece]
    changes: TextChanges


class TextSplitter:
    """Splits texts by the limits, symbols and languages of a checkpoint.

    With `strict` a character that the checkpoint lacks is an error.
    """

    def __init__(self, checkpoint: "Checkpoint | SavedState", frames_per_step: int, *, strict: bool) -> None:
        config, self._cache = checkpoint.config, checkpoint.cache
        self.tokenizer = Tokenizer(self._cache.symbols, config.text.blank)
        self._config, self._is_strict = config, strict
        self._step_seconds = frames_per_step * config.audio.hop_samples / config.audio.sample_rate

    def split(self, text: str, language_id: int) -> SplitText:
        """Return the text as one piece if it fits, else as its sentences or parts of them. Raises TextError."""
        language, limit = self._cache.languages[language_id], self._config.limits.max_text_length
        tokens, changes = self._encode(text, language)
        if len(tokens) <= limit:
            return SplitText([self._piece(tokens, 0.0)], changes)

        def fits(part: str) -> bool:
            try:
                return len(self._encode(part, language)[0]) <= limit
            except TextError:
                # Without a symbol to speak, such as a lone dash: no part of it is too long.
                return True

        pieces = []
        for part in split_sentences(text, language, fits):
            try:
                tokens, _ = self._encode(part, language)
            except TextError as error:
                if error.reason is not Reason.EMPTY_TEXT:
                    raise
                continue
            if len(tokens) > limit:
                found = f"{part.strip()!r} alone is {len(tokens)} tokens, the model was trained on {limit} at most"
                detail = f"{_quote(text)}: {found}; train with a higher limits.max_text_length"
                raise TextError(Reason.TEXT_TOO_LONG, detail)
            pieces.append(self._piece(tokens, pause_seconds(part)))
        if not pieces:
            remedy = REMEDIES[Reason.EMPTY_TEXT]
            raise TextError(Reason.EMPTY_TEXT, f"{_quote(text)}: no piece of it has anything to say; {remedy}")
        return SplitText(pieces, changes)

    def _piece(self, tokens: np.ndarray, pause: float) -> Piece:
        max_frames = round(self._config.synthesis.max_frames_per_token * len(tokens))
        return Piece(tokens, max_frames, round(pause / self._step_seconds))

    def _encode(self, text: str, language: str) -> tuple[np.ndarray, TextChanges]:
        try:
            prepared = prepare_texts([text], [language], self._config.text)[0]
            if isinstance(prepared, TextError):
                # The detail of an empty text, which is that of a corpus row, quotes the text itself.
                is_empty = prepared.reason is Reason.EMPTY_TEXT
                raise TextError(prepared.reason, "no letter or digit to speak") if is_empty else prepared
            fitted, changes = prepared, TextChanges()
            if not self._is_strict:
                fitted, changes = fit_to_symbols(prepared, self._cache.symbols)
            return self.tokenizer.encode(fitted), changes
        except TextError as error:
            remedy = REMEDIES.get(error.reason, "say it otherwise")
            raise TextError(error.reason, f"{_quote(text)}: {error.detail}; {remedy}") from None


def _quote(text: str) -> str:
    start = text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}..."
    return f"text {start!r}"
