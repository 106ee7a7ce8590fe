"""Write the dash of English ranges as `to` where the figures at its sides have signs or words: times, dates, money."""

import re

from xtts_pipeline.text.languages.english_words import CURRENCY_SIGNS, MONTH_NAMES

_HOUR = r"(?=(?:[01]?\d|2[0-3])(?::[0-5]\d| ?[ap]\.?m))"
_AFTER_HALF = r"(?:(?<=\d[ap]m)|(?<=\d [ap]m)|(?<=[ap]\.m\.))"
_NTH = "(?:st|nd|rd|th)"
_TO = (
    # $5-$10, $5 - $10
    re.compile(rf"(?<=[\dkKmMBn])-(?=(?:AU?|CA?|HK|NZ|US)?[{CURRENCY_SIGNS}] ?\d)"),
    re.compile(rf"(?<=[{CURRENCY_SIGNS}])(\d[\d.,]{{0,12}}) - (?=[{CURRENCY_SIGNS}]\d[\d.,]{{0,12}}(?![\d.,]| ?=))"),
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
    # Years that would be a telephone number: (750-1258); 555-1234 is one.
    re.compile(
        r"(?:(?<=\()|(?<=\bAD )|(?<=\b[fF]rom )|(?<=\b[bB]etween ))((?!555)\d{3,4}) ?- ?"
        r"(?=(?:1\d{3}|20[0-2]\d)(?![\w-]|[.,]\d))"
    ),
    # 1-1 1/2, 1/2-3/4
    re.compile(r"(?<=\d)-(?=\d{1,3} \d{1,2}/\d)|(?:(?<=\d/\d)|(?<=\d/\d\d))-(?=\d)"),
)


def write_ranges(text: str) -> str:
    """Return the text with ` to ` between the ends of these ranges."""
    if "-" in text:
        for pattern in _TO:
            text = pattern.sub(lambda match: f"{match[1] if match.re.groups else ''} to ", text)
    return text
