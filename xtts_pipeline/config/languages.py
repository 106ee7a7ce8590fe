"""One code per language: `de` for `DE`, `deu`, `german` and `Deutsch`, `de-AT` for `de_at`."""

import re
from collections.abc import Iterable
from functools import lru_cache

from xtts_pipeline.errors import nearest_name

# The languages that are known by name: code, English name, own name, further names.
_NAMES = """
af afrikaans|am amharic|ar arabic العربية|az azerbaijani|be belarusian беларуская|bg bulgarian български|bn bengali
ca catalan català|cs czech čeština|cy welsh cymraeg|da danish dansk|de german deutsch|el greek ελληνικά|en english
eo esperanto|es spanish español castellano|et estonian eesti|eu basque euskara|fa persian فارسی farsi|fi finnish suomi
fil filipino tagalog|fr french français|ga irish gaeilge|gl galician galego|gu gujarati|ha hausa|he hebrew עברית
hi hindi हिन्दी|hr croatian hrvatski|hu hungarian magyar|hy armenian|id indonesian|is icelandic íslenska
it italian italiano|ja japanese 日本語|ka georgian ქართული|kk kazakh қазақ kz|km khmer|kn kannada|ko korean 한국어
ky kyrgyz|la latin|lo lao|lt lithuanian lietuvių|lv latvian latviešu|mi maori|mk macedonian|ml malayalam|mn mongolian
mr marathi|ms malay|mt maltese|my burmese|nb bokmål|ne nepali|nl dutch nederlands flemish|nn nynorsk|no norwegian norsk
pa punjabi|pl polish polski|ps pashto|pt portuguese português|ro romanian română|ru russian русский|si sinhala
sk slovak slovenčina|sl slovenian slovenščina|sq albanian shqip|sr serbian српски|sv swedish svenska|sw swahili
ta tamil தமிழ்|te telugu|th thai ไทย|tr turkish türkçe|uk ukrainian українська|ur urdu اردو|uz uzbek
vi vietnamese|yo yoruba|yue cantonese|zh chinese 中文 mandarin|zu zulu
"""
_KNOWN = {entry.split()[0]: entry.split()[1:] for entry in re.split(r"[|\n]", _NAMES.strip())}
_CODES = {name: code for code, names in _KNOWN.items() for name in (code, *names)}
# Codes of countries that are often written for their languages, and are no codes of languages.
_COUNTRIES = {"cn": "zh", "jp": "ja", "cz": "cs", "gr": "el", "dk": "da"}
_NOT_A_LANGUAGE = frozenset(["und", "mul", "mis", "zxx"])
_TAG = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")
MAX_SHOWN = 40
_LONGEST_LANGUAGE = 80  # of a tag or name that is compared with others


def canonical_language(written: str, *, with_hint: bool = True) -> str:
    """Return the code of a language that is written as a code, tag or name.

    Any code of ISO 639 and any tag of BCP 47 is known. Raises ValueError with what was found and what was expected, and
    by `with_hint` the nearest name, which takes a millisecond.
    """
    written = written.strip()
    code = _CODES.get(written.lower()) or _standard_tag(written)
    if code is None:
        shown = repr(written if len(written) <= MAX_SHOWN else f"{written[:MAX_SHOWN]}...")
        near = _COUNTRIES.get(written.lower()) or (nearest_name(written.lower(), _CODES) if with_hint else None)
        hint = f"did you mean {near}? " if near else ""
        raise ValueError(f"language {shown} is not known; {hint}expected a code or name such as {', '.join(_KNOWN)}")
    return code


def same_language(first: str, second: str) -> bool:
    """Return whether two codes name one language; older caches and runs hold codes as they were written."""
    return first == second or _canonical_or_same(first) == _canonical_or_same(second)


def find_language(wanted: str, names: Iterable[str]) -> str | None:
    """Return the name among these that is `wanted`, or names the same language; None if there is none."""
    known = list(names)
    return wanted if wanted in known else next((name for name in known if same_language(name, wanted)), None)


def nearest_language(wanted: str, names: Iterable[str]) -> str | None:
    """Return the name among these in which text of the language `wanted` is spoken; None if there is none.

    That is the language itself, else a general form of it (`de` for `de-AT`), else a special one (`en-US` for `en`):
    lookup, then filtering, of RFC 4647.
    """
    known = list(names)
    if len(wanted) > _LONGEST_LANGUAGE:  # to compare thousands of its parts would take long
        return None
    if (same := find_language(wanted, known)) is not None:
        return same
    code, codes = _canonical_or_same(wanted), {name: _canonical_or_same(name) for name in known}
    general = [name for name in known if code.startswith(f"{codes[name]}-")]
    special = [name for name in known if codes[name].startswith(f"{code}-")]
    return max(general, key=lambda name: len(codes[name])) if general else next(iter(special), None)


def primary_language(language: str) -> str:
    """Return the first part of a language tag: `en` for `en-GB` and `EN_us`."""
    return re.split("[-_]", language, maxsplit=1)[0].lower()


def _canonical_or_same(code: str) -> str:
    try:
        return canonical_language(code)
    except ValueError:
        return code


@lru_cache(maxsize=1_000)
def _standard_tag(written: str) -> str | None:
    """Return the standard form of a tag, or None if its language is not registered."""
    # Its data take longer to import than some commands to run, and most languages are known above.
    from langcodes import standardize_tag, tag_is_valid

    if not _TAG.fullmatch(written):
        return None
    try:
        tag = str(standardize_tag(written))
    except ValueError:
        return None
    return tag if tag_is_valid(tag) and tag.partition("-")[0] not in _NOT_A_LANGUAGE else None
