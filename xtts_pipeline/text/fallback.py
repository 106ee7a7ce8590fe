"""Fit prepared text to the symbols of a model: the nearest form of an unknown character, else nothing in its place.

For synthesis only. In a corpus an unknown character rejects its row: a wrong transcript is worse than a lost row.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

from xtts_pipeline.errors import Reason, TextError

# Counts of (character, replacement); the replacement of a dropped character is empty.
TextChanges = Counter[tuple[str, str]]

MOST_CHANGES_NAMED = 150
# Replacements of a character; the first that the model has is taken; Unicode decomposes none of these letters.
_FORMS = {
    "\u00df": ("ss",),
    "\u00e6": ("ae",),
    "\u0153": ("oe",),
    "\u00f8": ("o",),
    "\u0142": ("l",),
    "\u0111": ("d",),
    "\u00f0": ("d",),
    "\u00fe": ("th",),
    "\u0127": ("h",),
    "\u0131": ("i",),
    "\u014b": ("ng",),
    "\u0167": ("t",),
    "\u0259": ("e",),
    "\u0261": ("g",),
    "g": ("\u0261",),
    ";": (",", "."),
    ":": (",", "."),
    "?": (".",),
    "!": (".",),
    "-": (" ",),
    "\u060c": (",",),
    "\u061b": (";", ",", "."),
    "\u061f": ("?", "."),
    "\u06d4": (".",),
    "\u3001": (",",),
    "\u3002": (".",),
    "\u0964": (".",),
    **dict.fromkeys("/\\_|~\u00b7\u2022\u200c", (" ",)),
}
_AFTER_WORDS = frozenset(["", *" ,.;:?!"])


def fit_to_symbols(text: str, symbols: Iterable[str]) -> tuple[str, TextChanges]:
    """Return the text with none but these symbols, and what was changed.

    An unknown character becomes a form of it in the other case, the form of a table (`;` a comma), its base letters
    (`\u00e9` an e), or is dropped. Raises TextError if no letter or digit is left.
    """
    known = frozenset(symbols)
    changes: TextChanges = Counter()
    fitted: list[str] = []
    for index, character in enumerate(text):
        if character in known:
            fitted.append(character)
            continue
        form = _known_form(character, known)
        changes[character, form] += 1
        fitted.append(form)
        # A word's space goes with the last character that was dropped after it.
        if not form and text[index + 1 : index + 2] in _AFTER_WORDS:
            while fitted and fitted[-1] in ("", " "):
                fitted.pop()
    if not changes:
        return text, changes
    plain = " ".join(part for part in "".join(fitted).split(" ") if part)
    if not any(map(str.isalnum, plain)):
        detail = f"no letter or digit is among the {len(known)} symbols ({describe_changes(changes)})"
        raise TextError(Reason.EMPTY_TEXT, detail)
    return plain, changes


def describe_changes(changes: TextChanges) -> str:
    """Return the changes for a message, the most frequent first: `'!' became '.' (3 times); dropped '%' (once)`."""
    ordered = changes.most_common()
    named = ordered[:MOST_CHANGES_NAMED]
    replaced = [f"{_show(old)} became {_show(new)} ({_times(count)})" for (old, new), count in named if new]
    dropped = [f"{_show(old)} ({_times(count)})" for (old, new), count in named if not new]
    parts = [", ".join(replaced)] if replaced else []
    parts += [f"dropped {', '.join(dropped)}"] if dropped else []
    parts += [f"and {len(ordered) - len(named)} characters more"] if len(ordered) > len(named) else []
    return "; ".join(parts)


def _known_form(character: str, known: frozenset[str]) -> str:
    """Return the first form of a character that has known symbols only, else an empty text."""
    for form in _forms(character):
        for cased in (form, form.lower(), form.upper()):
            if cased and known.issuperset(cased):
                return cased
    return ""


def _forms(character: str) -> Iterator[str]:
    decomposed = unicodedata.normalize("NFKD", character)
    base = "".join(part for part in decomposed if not unicodedata.category(part).startswith("M"))
    for form in (character, base):
        yield form
        yield from _FORMS.get(form.lower(), ())


def _show(character: str) -> str:
    # A mark on its own would be drawn on the quote, or not at all.
    is_mark = unicodedata.category(character[0]).startswith("M")
    return f"U+{ord(character):04X}" if is_mark else repr(character)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
