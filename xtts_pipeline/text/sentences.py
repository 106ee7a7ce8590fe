"""Split long text into pieces that are synthesized one by one, with a pause after each.

This comes before normalising, so numbers and abbreviations still have points that do not end a sentence.
"""

import re
import string
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence

from xtts_pipeline.config.languages import primary_language
from xtts_pipeline.text.languages.english import FOOTNOTE
from xtts_pipeline.text.languages.english_figures import TIME_GOES_ON
from xtts_pipeline.text.languages.english_words import (
    ABBREVIATIONS,
    BEFORE_NAMES,
    BEFORE_NUMBERS,
    MONTHS,
    WORDS_IN_SMALL_LETTERS,
)
from xtts_pipeline.text.languages.french import French
from xtts_pipeline.text.languages.german import German
from xtts_pipeline.text.languages.spanish import Spanish
from xtts_pipeline.text.normalize import JOINERS

PARAGRAPH_PAUSE_SECONDS = 0.5
SENTENCE_PAUSE_SECONDS = 0.35
CLAUSE_PAUSE_SECONDS = 0.15

# A colon or semicolon does not split shorter clauses: models speak very short texts worst.
MIN_CLAUSE_CHARACTERS = 25
# Cutting at a clause mark in the first third of what fits leaves more short pieces than cutting between words.
MIN_CLAUSE_SHARE = 1 / 3
FIRST_GUESS_WORDS = FIRST_GUESS_CHARACTERS = 16
LONGEST_ABBREVIATION = 20

# Marks that always end a sentence, in Chinese, Arabic, Urdu, Indian scripts, Ethiopic, Armenian, Khmer and Burmese.
_FULL_MARKS = "\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965\u1362\u1367\u0589\u17d4\u104b"
_POINT_MARKS = ".!?\u2026"
_WEAK_MARKS = ";:\uff1b\uff1a\u061b"
_COMMAS = ",\u060c\uff0c\u3001\u2013\u2014"
_CLOSERS = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\uff09\u300b\u3011"
_OPENERS = "\"'\u2018\u201c\u201e\u00ab\u2039([{\u00bf\u00a1\u300c\u300e\uff08\u300a\u3010"

# These close a quotation in some languages, with a space before it in French, and open one in others.
_LATE_CLOSERS = "\u201c\u2018\u00ab"
_LATE_CLOSER = rf"(?:[{_LATE_CLOSERS}]|[ \u00a0\u202f]\u00bb)(?=[\s.,;:!?)\u2026]|$)"

_LAST_FOOTNOTES = re.compile(rf"(?:{FOOTNOTE}){{1,5}}$")

_SPACES = re.compile(r"\s+")
_END = re.compile(
    rf"(?P<marks>\.(?: \.){{2,}}"
    rf"|[{_POINT_MARKS}{_FULL_MARKS}]*[{_FULL_MARKS}][{_POINT_MARKS}{_FULL_MARKS}]*|[{_POINT_MARKS}]+|[{_WEAK_MARKS}])"
    rf"(?P<closers>(?:[{re.escape(_CLOSERS)}]|{_LATE_CLOSER}|{FOOTNOTE})*)(?P<space>\s*)"
)
_CLAUSE_END = re.compile(
    rf"(?:[,;:\u2013](?=\s)|[\u060c\u061b](?!\d)|[\uff0c\u3001\uff1b\uff1a\u2014])[{re.escape(_CLOSERS)}]*"
)
_STRONG_CLAUSE_END = re.compile(rf"(?:[;:](?=\s)|\u061b(?!\d)|[\uff1b\uff1a])[{re.escape(_CLOSERS)}]*")
_LAST_WORD = re.compile(rf"[^\s{re.escape(_OPENERS)}\u2013\u2014-]*$")
_FIRST_LETTER = re.compile(rf"[{re.escape(_OPENERS)}]*(.?)", re.DOTALL)
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_NO_SPACE_NEEDED = frozenset(_FULL_MARKS + "\uff1b\uff1a\u061b")

# These end a sentence only before a capital letter.
_ENDING_ABBREVIATIONS = frozenset(["etc", "co", "corp", "inc", "ltd", "jr", "sr", "esq", "a.m", "p.m", "bros", "rd"])
# At the space after a point: 10 a.m. Monday, King Jr. Day, Acme Inc. CEO Ann Lee.
_NAME_GOES_ON = (
    r"(?:(?<=[Jj]r\.)|(?<=[Ii]nc\.)|(?<=[Cc]orp\.))\s(?:Day|Award|Blvd|CEO|CFO|President)(?!\w)"
    r"|(?<=[Bb]ros\.)\s(?:Pictures|Records|Studios|Television)(?!\w)"
)
_GOES_ON = {"en": re.compile(rf"(?<=[aApP]\.[mM]\.){TIME_GOES_ON}|{_NAME_GOES_ON}")}
# These are abbreviations only before a number.
_BEFORE_NUMBERS = frozenset(BEFORE_NUMBERS) | {"vol", "nr", "rs"}
# In English: it cost 300 Rs. 20 people paid.
_NOT_BEFORE_NUMBER = re.compile(rf"(?:\d Rs|(?<!\w)(?:{'|'.join(WORDS_IN_SMALL_LETTERS)}))$")
_ABBREVIATIONS = {
    "en": (frozenset(ABBREVIATIONS) - _ENDING_ABBREVIATIONS - _BEFORE_NUMBERS)
    | frozenset(
        [
            *(name.lower() for name in BEFORE_NAMES if name != "Ft"),
            "ph.d",
            "cf",
            "viz",
            "al",
            "eds",
            "sept",
            *(month[:3].lower() for month in MONTHS if month != "May"),
        ]
    ),
    "de": German.words.inner_points | {"fr", "str", "co", "med", "phil", "jur", "abt"},
    "fr": French.words.inner_points | {"mme", "mmes", "mlle", "ste"},
    "es": Spanish.words.inner_points | {"arq", "mtro", "mtra"},
    "pt": frozenset(["sr", "sra", "srta", "dra", "profa", "av", "exmo", "exma"]),
    "it": frozenset(["sig", "dott", "ecc"]),
    "nl": frozenset(["dhr", "mevr", "bijv", "ca"]),
}
# In small letters these are other words: 5 ft. tall, das ich mag.
_CAPITAL_ABBREVIATIONS = {"en": frozenset({"Ft"}), "de": frozenset({"Mag"})}
_ANY_LANGUAGE = frozenset(["dr", "prof", "st", "mr", "mrs"])
# Languages in which a point after a number marks an ordinal: `Am 3. Oktober`.
_ORDINAL_POINT = frozenset(
    ["cs", "da", "de", "et", "fi", "hr", "hu", "is", "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr"]
)


def split_sentences(text: str, language: str, fits: Callable[[str], bool]) -> list[str]:
    """Return the pieces of the text in order; joined, they equal the text except for white space.

    A piece is a sentence with its quotes and brackets; a colon or semicolon also ends one between two long clauses. A
    sentence that does not fit is cut after clause marks, else between words, else inside a word. A piece that still
    does not fit is a single character. The last piece of a paragraph ends in an empty line. Each piece holds a letter
    or digit, if its sentence does and the joined piece fits; an empty text has no pieces.

    `fits` returns whether a text is short enough. If it holds for a text, it must hold for each prefix. It is called
    once per sentence, about 2 log2(words) times per piece of a cut sentence, about 2 log2(characters) times per piece
    of a cut word, and never with the empty line.
    """
    pieces: list[str] = []
    for paragraph in _paragraphs(text):
        if pieces:
            pieces[-1] += "\n\n"
        for sentence in _sentences(paragraph, primary_language(language)):
            pieces.extend(_cut(sentence, fits))
    return pieces


def pause_seconds(piece: str) -> float:
    """Return the seconds of silence after a piece of `split_sentences`, by its last mark."""
    if piece.endswith("\n\n"):
        return PARAGRAPH_PAUSE_SECONDS
    mark = _LAST_FOOTNOTES.sub("", piece).rstrip(_CLOSERS + _LATE_CLOSERS + string.whitespace + "\u00a0\u202f")[-1:]
    if mark and mark in _POINT_MARKS + _FULL_MARKS:
        return SENTENCE_PAUSE_SECONDS
    return CLAUSE_PAUSE_SECONDS if mark and mark in _WEAK_MARKS + _COMMAS else 0.0


def _paragraphs(text: str) -> list[str]:
    """Return the stripped paragraphs, none of them empty: an empty line or a paragraph separator parts two."""
    # One pattern for the white space around an empty line would take time that grows with the square of its length.
    spaces = _SPACES.finditer(text)
    breaks = [space.span() for space in spaces if space[0].count("\n") > 1 or "\u2029" in space[0]]
    starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(text)]
    return list(filter(None, (text[start:end].strip() for start, end in zip(starts, ends, strict=True))))


def _sentences(paragraph: str, language: str) -> list[str]:
    """Split a stripped paragraph into sentences; one without a letter or digit is joined to its neighbour."""
    sentences: list[str] = []
    start = 0
    first_spoken = _next_spoken(paragraph, 0)
    last_spoken = next((index for index in reversed(range(len(paragraph))) if paragraph[index].isalnum()), 0)
    for match in _END.finditer(paragraph):
        end = match.end("closers")
        is_capital = paragraph[first_spoken : first_spoken + 1].isupper()
        if end > last_spoken or not _ends_sentence(paragraph, start, match, language, is_capital=is_capital):
            continue
        if first_spoken < end:
            sentences.append(paragraph[start:end])
            start = match.end()
            first_spoken = _next_spoken(paragraph, start)
    return [*sentences, paragraph[start:]]


def _next_spoken(text: str, start: int) -> int:
    """Return the index of the first letter or digit from `start` on, or the text's length if there is none."""
    return next((index for index in range(start, len(text)) if text[index].isalnum()), len(text))


def _ends_sentence(paragraph: str, start: int, match: re.Match[str], language: str, *, is_capital: bool) -> bool:
    marks, closers = match["marks"], match["closers"]
    if not match["space"] and not _NO_SPACE_NEEDED & set(marks):
        return False
    first = _FIRST_LETTER.match(paragraph, match.end())
    following = first[1] if first else ""
    if marks in _WEAK_MARKS:
        next_end = _END.search(paragraph, match.end())
        after = (next_end.start() if next_end else len(paragraph)) - match.end()
        return min(match.start() - start, after) >= MIN_CLAUSE_CHARACTERS
    # "Where to?" she asked. And so... on. Where sentences begin with capitals also: 5 ft. tall.
    if following.islower() and (closers or marks in ("...", "\u2026") or " " in marks or (marks == "." and is_capital)):
        return False
    goes_on = _GOES_ON.get(language)
    if goes_on and not closers and goes_on.match(paragraph, match.end("marks")):
        return False
    before = paragraph[max(start, match.start() - LONGEST_ABBREVIATION) : match.start()]
    return marks != "." or bool(closers) or not _is_abbreviation(before, following, language)


def _is_abbreviation(before: str, following: str, language: str) -> bool:
    """Return whether the point after `before` belongs to its last word; a missed end is better than a cut name."""
    found = _LAST_WORD.search(before)
    word = found[0] if found else ""
    lower = word.lower()
    if word.isdigit():
        return word == before or (language in _ORDINAL_POINT and len(word) <= 2)
    is_street = language == "de" and following.isdigit() and lower.endswith("str")  # Goethestr. 12
    is_capital = word in _CAPITAL_ABBREVIATIONS.get(language, frozenset())
    if is_street or is_capital or lower in _ABBREVIATIONS.get(language, frozenset()) | _ANY_LANGUAGE:
        return True
    if lower in _ENDING_ABBREVIATIONS:
        return not following.isupper()
    if lower in _BEFORE_NUMBERS:
        return following.isdigit() and not (language == "en" and _NOT_BEFORE_NUMBER.search(before))
    # An initial, or part of `z. B.`; an English `I` is more often the last word of a sentence.
    if len(word) == 1 and word.isalpha():
        return not (word == "I" and language == "en")
    return bool(_DOTTED.fullmatch(word))


def _can_be_spoken(text: str) -> bool:
    return any(map(str.isalnum, text))


def _cut(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut a sentence into pieces that fit, each as long as possible."""
    if fits(sentence):
        return [sentence]
    word_ends = [match.start() for match in _SPACES.finditer(sentence)] + [len(sentence)]
    pieces: list[str] = []
    start, guess, cut_word_end = 0, FIRST_GUESS_WORDS, 0
    while start < len(sentence):
        ends = word_ends[bisect_right(word_ends, start) :]
        # To ask for all that is left of a cut word, piece by piece, would take the square of its length.
        end = _cut_word(sentence, start, ends[0], fits) if start < cut_word_end else ends[0]
        if end == ends[0]:
            words = _count_fitting(sentence, start, ends, guess, fits)
            guess = max(words, 1)
            if words:
                end = ends[words - 1]
            else:
                end, cut_word_end = _cut_word(sentence, start, ends[0], fits), ends[0]
        if end < len(sentence):
            end = _last_clause_end(sentence, start, end)
        pieces.append(sentence[start:end])
        space = _SPACES.match(sentence, end)
        start = space.end() if space else end
    return _join_unspoken(pieces, fits)


def _count_fitting(text: str, start: int, ends: Sequence[int], guess: int, fits: Callable[[str], bool]) -> int:
    """Return how many of the ascending `ends` give text from `start` that fits, by exponential search from `guess`."""
    low, high = 0, min(guess, len(ends))
    while low < high and fits(text[start : ends[high - 1]]):
        low, high = high, min(2 * high, len(ends))
    # If any end does not fit, that at `high - 1` does not.
    return low + bisect_right(range(low, high - 1), False, key=lambda index: not fits(text[start : ends[index]]))


def _last_clause_end(text: str, start: int, limit: int) -> int:
    """Return the last index up to `limit` after a clause mark, preferring semicolons and colons; else `limit`."""
    for pattern in (_STRONG_CLAUSE_END, _CLAUSE_END):
        # One more character, to match the space after a mark.
        ends = [match.end() for match in pattern.finditer(text, start, limit + 1) if match.end() <= limit]
        if ends and ends[-1] - start >= MIN_CLAUSE_SHARE * (limit - start):
            return ends[-1]
    return limit


def _cut_word(text: str, start: int, word_end: int, fits: Callable[[str], bool]) -> int:
    """Return where to cut a word: after as many whole characters as fit, at least one; its end if it fits."""
    end = start + max(1, _count_fitting(text, start, range(start + 1, word_end + 1), FIRST_GUESS_CHARACTERS, fits))
    while end > start + 1 and end < word_end and _continues_character(text[end]):
        end -= 1
    while end < word_end and _continues_character(text[end]):
        end += 1
    return end


def _continues_character(character: str) -> bool:
    return character in JOINERS or unicodedata.category(character).startswith("M")


def _join_unspoken(pieces: list[str], fits: Callable[[str], bool]) -> list[str]:
    """Join pieces without a letter or digit to the one before if that fits: a lone dash cannot be spoken."""
    joined: list[str] = []
    for piece in pieces:
        if joined and not (_can_be_spoken(piece) and _can_be_spoken(joined[-1])) and fits(f"{joined[-1]} {piece}"):
            joined[-1] += f" {piece}"
        else:
            joined.append(piece)
    return joined
