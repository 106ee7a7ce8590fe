"""Write the dash of English ranges as `to` where the figures at its sides have signs or words: times, dates, money."""

import re

from xtts_pipeline.text.languages.english_words import CURRENCY_SIGNS, MONTH_NAMES

_HOUR = r"(?=(?:[01]?\d|2[0-3])(?::[0-5]\d| ?[ap]\.?m(?![^\W\d_])))"
_AFTER_HALF = r"(?:(?<=\d[ap]m)|(?<=\d [ap]m)|(?<=[ap]\.m\.))"
_NTH = "(?:st|nd|rd|th)"
_YEAR = r"(?=(?:1\d{3}|20[0-2]\d)(?![\w-]|[.,]\d))"
_TO = (
    # $5-$10
    re.compile(rf"(?<=[\dkKmMBn])-(?=(?:AU?|CA?|HK|NZ|US)?[{CURRENCY_SIGNS}] ?\d)"),
    # May 5-June 3, 5 May-3 June
    re.compile(rf"(?:(?<=\d)|(?<=\d{_NTH}))-(?=(?:{MONTH_NAMES})\.? \d)"),
    re.compile(rf"(?<=\d )({MONTH_NAMES}) ?- ?(?=\d{{1,2}} (?:{MONTH_NAMES})(?!\w))"),
    # 9-10:30, 9am-5pm, 10:00 - 11:00, 10:00-11, noon-1pm
    re.compile(rf"(?<=\d)-{_HOUR}", re.IGNORECASE),
    re.compile(rf"(?:{_AFTER_HALF}|(?<=\d:\d\d)) ?- ?{_HOUR}", re.IGNORECASE),
    re.compile(r"(?<=\d:\d\d)-(?=\d{1,2}(?!\d))"),
    re.compile(rf"(?:(?<=\bnoon)|(?<=\bmidnight))-{_HOUR}|{_AFTER_HALF}-(?=(?:noon|midnight)\b)", re.IGNORECASE),
    # 16th-17th, 1920s-30s
    re.compile(rf"(?<=\d{_NTH})-(?=\d{{1,3}}{_NTH}\b)"),
    re.compile(r"(?<=\d0s)-(?='?(?:\d\d)?\d0s\b)"),
    re.compile(rf"(?:(?<=\()|(?<=\bAD )|(?<=\b[fF]rom )|(?<=\b[bB]etween ))((?!555)\d{{3,4}}) - {_YEAR}"),
    # 1-1 1/2, 1/2-3/4
    re.compile(r"(?<=\d)-(?=\d{1,3} \d{1,2}/\d)|(?:(?<=\d/\d)|(?<=\d/\d\d))-(?=\d)"),
)
_SUM = r"\d[\d,]{0,12}(?:\.\d\d?)?"
_SUMS = re.compile(rf"(?<=[{CURRENCY_SIGNS}])({_SUM}) - (?=[{CURRENCY_SIGNS}]({_SUM})(?![\d.,]*\d| ?=))")
# Years that could be a telephone number: (750-1258); 555-1234 is one.
_JOINED_YEARS = re.compile(rf"(?:(?<=\()|(?<=\bAD ))((?!555)\d{{3}})-{_YEAR}")
_CALLED = re.compile(
    r"\b(?:call|contact|dial|extension|fax|number|phone|tel|telephone)\b|\b(?:at|called|me) \($", re.IGNORECASE
)
_CALLED_CHARACTERS = 40


def write_ranges(text: str) -> str:
    """Return the text with ` to ` between the ends of these ranges."""
    if "-" in text:
        for pattern in _TO:
            text = pattern.sub(lambda match: f"{match[1] if match.re.groups else ''} to ", text)
        text = _JOINED_YEARS.sub(_joined_years, _SUMS.sub(_sums, text))
    return text


def _joined_years(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - _CALLED_CHARACTERS) : match.start()]
    return match[0] if _CALLED.search(before) else f"{match[1]} to "


def _sums(match: re.Match[str]) -> str:
    """Return ` to ` for the dash of $5 - $10, but not of the difference $5 - $3."""
    first, second = (float(figure.replace(",", "")) for figure in match.groups())
    return f"{match[1]} to " if first < second else match[0]
