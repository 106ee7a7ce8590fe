"""Convert prepared texts to token ids.

The cache and the synthesizer use the same tokenizer, built from the manifest's symbols. NumPy only.
"""

import unicodedata
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xtts_pipeline.config.schema import LimitsConfig, TextConfig
from xtts_pipeline.errors import TOO_LONG_REMEDY, Reason, TextError

# The ids with a fixed meaning in every cache; the symbols follow.
PAD_ID, BEGIN_ID, END_ID = 0, 1, 2
FIRST_SYMBOL_ID = 3


@dataclass(frozen=True)
class Tokenizer:
    """Token ids for texts over a fixed list of one-character symbols.

    The ids are pad 0, begin 1, end 2, then `symbols` in order. With `blank`, a blank separates every two symbols; its
    id follows that of the last symbol.
    """

    symbols: tuple[str, ...]
    blank: bool = False

    @property
    def symbol_count(self) -> int:
        """Number of ids including pad and blank: the rows of an embedding table."""
        return FIRST_SYMBOL_ID + len(self.symbols) + int(self.blank)

    @property
    def blank_id(self) -> int:
        """Id of the blank, whether or not it is in use."""
        return FIRST_SYMBOL_ID + len(self.symbols)

    def encode(self, text: str) -> np.ndarray:
        """Return the ids with begin and end: int32, [characters + 2], or [2 * characters + 1] with blanks.

        Raises TextError if the text is empty, or for the first character that is not among the symbols.
        """
        if not text:
            raise TextError(Reason.EMPTY_TEXT, "the text is empty; expected at least one symbol")
        try:
            ids = np.fromiter(map(self._ids.__getitem__, text), np.int32, len(text))
        except KeyError as error:
            unknown = str(error.args[0])
            found = f"{describe_character(unknown)} at position {text.index(unknown)}"
            detail = f"{found} is not among the {len(self.symbols)} symbols"
            raise TextError(Reason.UNKNOWN_SYMBOL, detail) from None
        tokens = np.full(2 * len(ids) + 1 if self.blank else len(ids) + 2, self.blank_id, np.int32)
        tokens[1 : -1 : 2 if self.blank else 1] = ids
        tokens[0], tokens[-1] = BEGIN_ID, END_ID
        return tokens

    def name_of(self, token: int) -> str:
        """Return an id's symbol, `<pad>`, `<begin>`, `<end>` or `<blank>`; `<ID?>` for an unknown id."""
        if FIRST_SYMBOL_ID <= token < self.blank_id:
            return self.symbols[token - FIRST_SYMBOL_ID]
        named = {PAD_ID: "<pad>", BEGIN_ID: "<begin>", END_ID: "<end>"}
        if self.blank:
            named[self.blank_id] = "<blank>"
        return named.get(token, f"<{token}?>")

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {symbol: FIRST_SYMBOL_ID + index for index, symbol in enumerate(self.symbols)}


def check_text_length(length: int, limits: LimitsConfig, config: TextConfig) -> None:
    """Raise TextError if `length` tokens are over `limits.max_text_length`; the message says what was counted."""
    if length > limits.max_text_length:
        counted = "begin, end and the blanks between symbols" if config.blank else "begin and end"
        limit = f"limits.max_text_length={limits.max_text_length}"
        raise TextError(
            Reason.TEXT_TOO_LONG,
            f"{length} tokens, {counted} included, are over {limit}; {TOO_LONG_REMEDY}",
        )


def describe_character(character: str) -> str:
    """Return a character for a message: `'x' (U+0078 LATIN SMALL LETTER X)`, escaped if it cannot be printed."""
    return f"{character!r} (U+{ord(character):04X} {unicodedata.name(character, 'without a name')})"
