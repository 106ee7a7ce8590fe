"""Find texts that are not in their language, and figures that its rules do not read, before anything is computed.

A check of scripts, letters and frequent words in a sample of rows: it loads no model, and says nothing of languages
that it cannot tell apart.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from langcodes import Language

from xtts_pipeline.config.languages import primary_language
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.normalize import LANGUAGES_READ
from xtts_pipeline.text.numbers import has_number_words

MOST_ROWS = 2_000
# A row in a hundred may be a quotation; a tenth of all rows is another language.
MIN_SCRIPT_SHARE, MIN_WORD_SHARE = 0.01, 0.1
MOST_SHOWN = 5
# Unicode's names of the letters of a script.
_SCRIPTS = {
    "Latn": ("LATIN",), "Cyrl": ("CYRILLIC",), "Arab": ("ARABIC",), "Grek": ("GREEK",), "Hebr": ("HEBREW",),
    "Deva": ("DEVANAGARI",), "Beng": ("BENGALI",), "Hans": ("CJK",), "Hant": ("CJK", "BOPOMOFO"),
    "Jpan": ("HIRAGANA", "KATAKANA", "CJK"), "Kore": ("HANGUL", "CJK"), "Thai": ("THAI",), "Geor": ("GEORGIAN",),
    "Armn": ("ARMENIAN",), "Taml": ("TAMIL",), "Telu": ("TELUGU",), "Knda": ("KANNADA",), "Mlym": ("MALAYALAM",),
    "Gujr": ("GUJARATI",), "Guru": ("GURMUKHI",), "Sinh": ("SINHALA",), "Ethi": ("ETHIOPIC",), "Khmr": ("KHMER",),
    "Laoo": ("LAO",), "Mymr": ("MYANMAR",),
}  # fmt: skip
_SCRIPT_CODES = {names[0]: script for script, names in reversed(_SCRIPTS.items())}
_IN_TWO_SCRIPTS = frozenset(["az", "bs", "kk", "ku", "ky", "mn", "pa", "sr", "tg", "tk", "uz"])
# Letters that English lacks, and frequent words.
_LETTERS_AND_WORDS = {
    "en": ("", "the and of to in is that was for with it he his on be at by had not you are this"),
    "de": ("äöüß", "der die und das ist nicht ein eine den mit von auf sich des dem ich sie wir es im zu"),
    "fr": ("éèêëçàâùûîïôœ", "le la les et des est une dans que qui pas pour du au ne sur il elle nous ce"),
    "es": ("ñáíóúé¿¡", "el la los las y que del por con una para es se su como más en no de un"),
    "it": ("àèìòù", "il che di la e non per una sono del con gli della è un si lo le nel"),
    "pt": ("ãõçáéíóúâê", "o que não uma para com os as do da em se por um é de e no na"),
    "nl": ("ëï", "de het een en van is dat niet op te zijn voor met die ik er maar"),
    "sv": ("åäö", "och att det som en på är för av med till inte den jag var"),
    "da": ("æøå", "og at det er en til på som af med ikke den jeg var der"),
    "no": ("æøå", "og det er på som til av med ikke jeg en at den var"),
    "pl": ("ąćęłńóśźż", "i w nie na się z do to że jest co jak a o ale"),
    "cs": ("áčďéěíňóřšťúůýž", "a se v na je že to s z do o si jsem by ale"),
    "fi": ("äö", "ja on ei että se hän oli mutta kun niin joka ovat"),
    "hu": ("áéíóöőúüű", "a az és hogy nem is egy de volt van meg"),
    "tr": ("çğıöşü", "ve bir bu da de için ile çok ne o gibi var"),
    "ro": ("ăâîșț", "și în de la cu nu care este o un pe din mai"),
    "id": ("", "yang dan di itu dengan untuk dari tidak ini ke akan pada"),
}
_LETTERS = {language: frozenset(letters) for language, (letters, _) in _LETTERS_AND_WORDS.items()}
_WORDS = {language: frozenset(words.split()) for language, (_, words) in _LETTERS_AND_WORDS.items()}
_WORD = re.compile(r"[^\W\d_]+")
# Such as "A M Y" or "U. S. A.": letters that are spelled are no words.
_SPELLED = re.compile(r"(?:\b[^\W\d_]\b[\s.]*){3,}")
_FIGURES = re.compile(r"\d")
_UNREAD = re.compile(r"[%€$£¥&@§°#+=²³½¼¾]|\d[./:-]\d")


def check_languages(
    texts: Sequence[str], languages: Sequence[str], config: TextConfig, *, is_made: bool = False
) -> list[str]:
    """Return one line for each language whose texts look like another's, or hold figures that nothing reads.

    is_made: the texts are those of a cache, which must be made again.
    """
    lines = []
    for language in sorted(set(languages)):
        rows = [text for text, own in zip(texts, languages, strict=True) if own == language]
        sample = rows[:: -(-len(rows) // MOST_ROWS)]
        is_set = language == config.language
        if (doubt := _wrong_script(sample, language) or _wrong_words(sample, language)) is not None:
            if is_set:
                remedy = f"{'preprocess again with' if is_made else 'add'} --set text.language={doubt.code}"
            else:
                remedy = f"correct the rows' language to {doubt.code}{', preprocess again' if is_made else ''}"
            lines.append(f"language {language}: {doubt.found}; {remedy}{doubt.others}")
        lines += unread_figures(sample, language, config)
    return lines


def unread_figures(texts: Sequence[str], language: str, config: TextConfig) -> Iterator[str]:
    """Yield a line if texts hold figures or signs that are not read in this language."""
    primary = primary_language(language)
    if not config.expand or primary in LANGUAGES_READ:
        return
    has_words = has_number_words(primary)
    # espeak-ng reads the digits that are left.
    if not has_words and config.tokens == "characters" and any(map(_FIGURES.search, texts)):
        yield f"language {language}: it has no number words here, so digits stay; write numbers in words"
    elif any(map(_UNREAD.search, texts)):
        yield f"language {language}: numbers are read, but signs, dates and times are not; write these in words"


class _Doubt(NamedTuple):
    """What is found in texts, the code of the language that may be meant, and what else may be meant."""

    found: str
    code: str
    others: str = ""


def _wrong_script(texts: Sequence[str], language: str) -> _Doubt | None:
    """Return the doubt about texts that are mostly in letters of another script."""
    tag = Language.get(language)
    expected = _SCRIPTS.get(tag.maximize().script or "")
    if expected is None or (tag.script is None and tag.language in _IN_TWO_SCRIPTS):
        return None
    rows = 0
    found: Counter[str] = Counter()
    for text in texts:
        scripts = Counter(script for script in map(_script_of, text) if script)
        others = {script: count for script, count in scripts.items() if script not in expected}
        if 2 * sum(others.values()) > sum(scripts.values()):
            rows += 1
            found.update(others)
    if not rows or rows < MIN_SCRIPT_SHARE * len(texts):
        return None
    script = found.most_common(1)[0][0]
    code = _SCRIPT_CODES.get(script)
    name = "Chinese" if script == "CJK" else script.capitalize()
    meant = str(Language.make(script=code).maximize().language) if code else "CODE"
    return _Doubt(f"{_of(rows, texts)} in {name} letters", meant, ", or another code for these letters")


def _wrong_words(texts: Sequence[str], language: str) -> _Doubt | None:
    """Return the doubt about texts that hold far more signs of another language."""
    own = {"nb": "no", "nn": "no"}.get(primary_language(language), primary_language(language))
    if own not in _WORDS:
        return None
    rows: Counter[str] = Counter()
    found: dict[str, Counter[str]] = {other: Counter() for other in _WORDS}
    for text in texts:
        # Each word counts once in a row: two addresses in `.com` are no Portuguese.
        words = dict.fromkeys(_WORD.findall(_SPELLED.sub(" ", text.lower())))
        signs = {other: [word for word in words if _is_sign(word, other)] for other in _WORDS}
        best = max(signs, key=lambda other: len(signs[other]))
        if len(signs[best]) >= 2 and len(signs[best]) > 2 * len(signs[own]):
            rows[best] += 1
            found[best].update(signs[best])
    if not rows or rows.total() < MIN_WORD_SHARE * len(texts):
        return None
    best = rows.most_common(1)[0][0]
    shown = ", ".join(word for word, _ in found[best].most_common(MOST_SHOWN))
    return _Doubt(f"{_of(rows[best], texts)} like {best} ({shown})", best)


def _is_sign(word: str, language: str) -> bool:
    return word in _WORDS[language] or (not word.isascii() and not _LETTERS[language].isdisjoint(word))


def _of(rows: int, texts: Sequence[str]) -> str:
    return f"{rows} of {len(texts)} rows {'is' if rows == 1 else 'are'}"


@lru_cache(maxsize=20_000)
def _script_of(character: str) -> str:
    """Return the first word of a letter's name, such as LATIN; empty for other characters."""
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
