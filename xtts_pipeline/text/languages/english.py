"""Expand English abbreviations, signs, Roman numerals, addresses and figures to words."""

import re

from xtts_pipeline.text.languages.addresses import address_reader
from xtts_pipeline.text.languages.english_figures import (
    expand_figures,
    full_stop,
    month_of,
    spoken,
    unit_of,
    unit_words,
)
from xtts_pipeline.text.languages.english_words import (
    ABBREVIATIONS,
    BEFORE_NAMES,
    BEFORE_NUMBERS,
    DOTTED_WORDS,
    MONTH_NAMES,
    MONTHS,
    NUMBERED,
    RULERS,
    SCALES,
    TITLES,
    UNITS,
    WEEKDAYS,
    WORDS_IN_SMALL_LETTERS,
    small_letters,
)
from xtts_pipeline.text.languages.powers import RAISED, write_powers
from xtts_pipeline.text.languages.reading import roman_value
from xtts_pipeline.text.numbers import set_apart

# These often end a sentence: their full stop stays before a capital letter.
_ENDING = frozenset({"etc", "inc", "ltd"})
# These end a sentence now and then, and stand in names too: King Jr. Day.
_MAY_END = frozenset({"co", "corp", "jr", "sr", "esq", "ave", "blvd", "rd", "bros"})
SIGNS = {"&": "and", "%": "percent", "@": "at", "+": "plus", "=": "equals", "#": "hash", "\u00b0": "degrees"}
SIGNS |= {"\u00b1": "plus or minus", "\u00d7": "times", "\u00f7": "divided by", "\u00a7": "section"}
SIGNS |= {"\u2248": "approximately", "\u2260": "is not equal to", "\u221e": "infinity", "\u2030": "per thousand"}
SIGNS |= {"\u2264": "less than or equal to", "\u2265": "greater than or equal to"}
SIGNS |= {"$": "dollars", "\u20ac": "euros", "\u00a3": "pounds", "\u00a2": "cents"}
_IN_ADDRESSES = {".": "dot", "/": "slash", "-": "dash", "_": "underscore", "@": "at", ":": "colon", "~": "tilde"}
_IN_ADDRESSES |= {"?": "question mark", "=": "equals", "&": "and", "#": "hash", "+": "plus", "%": "percent"}
_FRACTIONS = {"\u00bd": "1/2", "\u00bc": "1/4", "\u00be": "3/4", "\u2153": "1/3", "\u2154": "2/3"}
_FRACTIONS |= {"\u215b": "1/8", "\u215c": "3/8", "\u215d": "5/8", "\u215e": "7/8"}
_FRACTIONS |= {"\u2155": "1/5", "\u2156": "2/5", "\u2157": "3/5", "\u2158": "4/5", "\u2159": "1/6", "\u215a": "5/6"}
# Signs of one meaning: degrees, number, fraction slash, micro, low digits.
_PLAIN_SIGNS = str.maketrans(
    {"\u2103": "\u00b0C", "\u2109": "\u00b0F", "\u2116": "#", "\u2044": "/", "\u00b5": "\u03bc"}
    | {chr(0x2080 + digit): str(digit) for digit in range(10)}
)
_POWERS = {"\u00b2": "squared", "\u00b3": "cubed"}
_POWERS |= {chr(0x2070 + digit): f"to the power of {spoken(str(digit))}" for digit in (0, *range(4, 10))}

_SLASHED = {"w/o": "without", "w/out": "without", "c/o": "care of"}

# Whole words only: `disco.` does not end in `co.`. Small letters: to rev, my hon, a col, the gen, five milliseconds.
_ABBREVIATION = re.compile(
    r"(?<![\w.])(?!(?-i:(?:rev|hon|rd)\.|(?:col|gen)\.(?! [a-z]))|(?<=\d )ms\.)"
    rf"({'|'.join(ABBREVIATIONS)})\.(?!\w)",
    re.IGNORECASE,
)
# An address; but in 2021 Surgeon General Dr. Lee is a name.
_DRIVE = re.compile(r"(?<!\w)(?!(?:19|20)\d\d (?:[A-Z]\w{1,20} ){1,3}Dr\. [A-Z])(\d{1,5} (?:[A-Z]\w{1,20} ){1,3})Dr\.")
_SAINT_OR_STREET = re.compile(r"(?<![\w.])st\.(?=( ?\w)?)(?!\w)", re.IGNORECASE)
_STREET_PART = re.compile(r" (?:[NS]\.?[EW]|[NSEW](?![\w.]))(?!\w)")
_TITLE_BEFORE_NAME = re.compile(r"(?<![\w.])(Mr|Mrs|Ms|Dr|Prof|St|(?:Mt|Sgt|Capt|Lt|Col|Maj)(?= [A-Z][a-z]))(?= [A-Z])")
# These are abbreviations without a full stop too.
_WITHOUT_STOP = re.compile(r"(?<![\w./'-])(Jr|vs|etc)(?![\w./'-])")
_NUMBER_AHEAD = re.compile(
    rf"(?<![\w.])(?!(?-i:{'|'.join(WORDS_IN_SMALL_LETTERS)})\.)({'|'.join(BEFORE_NUMBERS)})\. ?"
    r"(?=\d|(?-i:[IVXLC]{2,}|[VX])(?!\w))",
    re.IGNORECASE,
)
_SQUARE_UNIT = re.compile(r"(?<=\d) ?sq\.? (mi|ft|km|m|in|yd)(?!\w)")
_TIMES_TEN = re.compile("(?<=\\d) ?\u00d7 ?(?=10[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079])")
_PENSION_PLAN = re.compile(r"(?<![\w.,$-])40([13])(?:\(([kb])\)|([kb])(?!\w))")
# The second figure of an A320-200 is no number of the first.
_MODEL = re.compile(r"((?<=[A-Za-z])\d+|(?<=Boeing )7\d7)-(?=\d)")
_OIL_GRADE = re.compile(r"(?<![\w.,-])(\d{1,2})W-(?=[2-6]0(?!\w))")
# Dec.25, and `home.5 people`, but not the names part.0.csv and ASN.1.
_STOP_BEFORE_FIGURE = re.compile(r"(?<![\w./-])([^\W\d_][a-z]+)\.(?=\d+(?!\d|\.\w))")
_LETTER_BEFORE_FIGURE = re.compile(r"(?<=[^\W\d_])\.(?=\d)")
_RUPEES = re.compile(r"(?<!\w)(?<!\d )Rs\.? ?(?=\d)")
_FISCAL_YEAR = re.compile(r"(?<!\w)FY ?(?=(?:19|20)\d\d(?!\d))")
_HEXADECIMAL = re.compile(r"(?<!\w)0x([0-9A-Fa-f]+)(?!\w)")
_EXPONENT = re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?)[eE]([+-])(?=\d{1,3}(?!\w|\.\d))")
_TYPED_POWER = re.compile(r"(?<=[A-Za-z])\^([23])(?!\w|\.\d)")
_ARC = re.compile(r"(?<=\d)\u00b0 ?(\d{1,2})' ?(?:(\d{1,2})\" ?)?([NSEW])(?!\w)")
_COMPASS = {"N": "north", "S": "south", "E": "east", "W": "west"}
_PER_100_KM = re.compile("(?<=[lL])/(?=100 ?km)")
_HOURS = re.compile(r"(?<![\w.,:-])((?<=\b[aA]t )[012]\d|0\d)([0-5]\d)(?= (?:hours|hrs)\b(?! (?:of|a|per|each)\b))")
_ZIP_CODE = re.compile(r"(?<!\w)(zip(?: codes?)? )(\d{5})(?![\w-]|[.,]\d)", re.IGNORECASE)
_OLD_ORDINAL = re.compile(
    rf"(?<![\w.,])(\d{{0,3}}[23])d(?= of (?:{MONTH_NAMES})| (?:Regiment|Infantry|Cavalry|Battalion|Brigade|Division)\b)"
)
# A mark of a footnote, as in `It ended.[12] Then`.
FOOTNOTE = r"\[\d{1,3}\]|[\u00b9\u00b2\u00b3\u2070\u2074-\u2079]"
_FOOTNOTES = re.compile(rf"(?<=[.,;!?\"])(?:{FOOTNOTE}){{1,5}}(?=\s|$)")
_COUNTED = "people|homes|households|customers|users|jobs|children|voters|viewers|workers|copies|barrels|tonnes|tons"
_COUNTED += "|families|followers|views|doses|visitors|passengers|units"
# Children of class 3B are no billions.
_MILLION = re.compile(rf"((?<=\d)m|(?:(?<=\d\.\d)|(?<=\d\.\d\d))[bB])(?= (?:{_COUNTED})\b)")
_NUMBER_NO = re.compile(r"(?<=[\w,;] )No (?=\d{1,3}(?!\d|[.,]\d))")
_BEFORE_NAME = re.compile(rf"(?<![\w.])(?<!\d )({'|'.join(BEFORE_NAMES)})\.(?= [A-Z])")
_AGAINST = re.compile(r"(?<![\w.'])([A-Z][\w.']{0,30} )v\.(?= [A-Z])")
_CIRCA = re.compile(r"(?<![\w.])c\. ?(?=(?:1\d|[2-9])\d\d(?!\d))")
# Jan alone is a name as well.
_MONTH = re.compile(r"(?<![\w.])((?<=\b[iI]n )Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.(?! ?\d)(?!\w)")
_DOTTED_WORD = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, DOTTED_WORDS))})(?:(\.)|(?!\w))(?!\w)", re.IGNORECASE)
_LETTERS = re.compile(r"(?<![\w.])((?:[A-Za-z]\.)+[A-Za-z])(?:(\.)|(?!\w))(?!\w)")
_read_addresses = address_reader(_IN_ADDRESSES, r"(?:co|ac|org|gov)\.uk|(?:com|net|org|gov|edu)\.au|co\.(?:nz|za|in)")
_UNIT_PER = re.compile(
    rf"(?<![\w/])(?<!\d )({'|'.join(sorted(UNITS, key=len, reverse=True))})/(s|h|hr|min)(?![^\W\u00b2]|/)"
)
_PER_PERIOD = re.compile(r"(?<=[a-z]s)/(s|h|hr|min|sec|day|week|month|year)(?!\w)")
_MPH = re.compile(r"(?<![\w/])mph(?!\w)", re.IGNORECASE)
_WITH = re.compile(r"(?<![\w/.])(?:(w/o|w/out|c/o)(?!\w)|w/ ?(?=[^\W\d_]))")
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])/(?=[^\W\d_])")
_WORLD_WAR = re.compile(r"(?<!\w)WW(I{1,3}|[123])(?!\w)")
_ROMAN = re.compile(
    r"(?<=[A-Za-z] )(?=[IVXLC])(?P<numeral>C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3}))(?![\w.]\w|\w)"
    r"(?P<stop>\.(?=,| [a-z]))?"
)
_INITIAL = re.compile(r"[A-Z]\.")
# The pronoun, as in `the Book I read`; a numeral is followed by other words.
_DOES = "am have had can could will would do did must should might think know want like love need see saw read took got"
_DOES += " thought knew wanted liked loved found went made wrote bought play played mean said use used hope guess just"
_DOES += " chose sat ever never felt remember heard told gave really"
_PRONOUN = re.compile(rf"'(?:m|d|ll|ve)(?!\w)| (?:{'|'.join(_DOES.split())})(?:n't)?(?!\w)", re.IGNORECASE)
# Among capitals alone any other word may be a verb.
_PRONOUN_IN_CAPITALS = re.compile(r" (?!(?:OF|AND|OR|TO|IS)(?!\w))[A-Z]{2}")
_HEADINGS = frozenset({"act", "appendix", "article", "chapter", "scene", "volume"})
_CENTURY = re.compile(r"(?<![\w.])([IVX]{1,6}) (?=century|centuries|dynasty)")
_RULER_DID = "of|in|to|by|from|at|on|with|was|died|became|married|succeeded|reigned|ruled|abdicated"
_OF_A_RULER = re.compile(rf"(?=[,.;:)!?'\"]|$| (?:{_RULER_DID}) | and the )")
_VULGAR = re.compile(f"([{''.join(_FRACTIONS)}])")
_POWER = re.compile(f"(?<=[^\\W_]) ?([{''.join(_POWERS)}])")
_SHARP = re.compile(r"(?<=\b[A-G])#(?!\w)")
# CO2, MI6, H2SO4, AT&T: two capitals at a figure or an ampersand are no word.
_TWO_INITIALS = re.compile(r"(?<![\w.'-])[A-Z]{2}(?=\d|&)|(?<=[A-Z]\d)[A-Z]{2}(?=\d)|(?<=&)[A-Z]{2}(?!\w)")
_HASHTAG = re.compile(r"#(?=[^\W\d_])")
_SIGN = re.compile(f" ?([{re.escape(''.join(SIGNS))}])")
_AFTER_SENTENCE = re.compile(r" (?:He|She|It|They|We|You|I|The|This|That|There|In|But|And|A)(?!\w)")
_WEEKDAY = re.compile(
    rf"(?<![\w.])({'|'.join(WEEKDAYS)})\.(?=[-,]| (?:at )?\d| (?:{'|'.join(month[:3] for month in MONTHS)})"
    r"| (?:night|morning|afternoon|evening)\b)"
)
_WEEKDAYS = re.compile(rf"(?<![\w.-])({'|'.join(WEEKDAYS)})\.?-({'|'.join(WEEKDAYS)})(?![\w-]|\.\w)(\.(?! [A-Z]|$))?")
_ANY_SIGN = re.compile(r"[^\w\s.,;:'\"!?()-]")
_ANY_NUMERAL = re.compile(r"(?<!\w)[IVXLCW]+[123]?(?!\w)")
_INNER_STOP = re.compile(r"\w\.\w")
_LAST_WORDS_CHARACTERS = 60


def expand_english(text: str) -> str:
    """Return the text without figures. A number from 1100 to 2099 that stands alone is read as a year.

    An abbreviation at the end of the text keeps its full stop.
    """
    # Each rule needs a full stop, a sign, a numeral or a digit, so most lines pass untouched.
    has_sign = not text.isascii() or _ANY_SIGN.search(text) is not None
    has_inner_stop = _INNER_STOP.search(text) is not None
    if has_sign or has_inner_stop:
        text = _read_addresses(_FOOTNOTES.sub("", text).translate(_PLAIN_SIGNS))
    if any(map(str.isdecimal, text)):
        text = _prepare_figures(text)
        has_sign = has_sign or not text.isascii()
    text = _expand_words_without_stop(text)
    if "." in text:
        text = _expand_abbreviations(text)
    if _ANY_NUMERAL.search(text):
        text = _CENTURY.sub(_century, _WORLD_WAR.sub(r"World War \1", text))
        text = _ROMAN.sub(_roman, text)
    if has_sign:
        text = _UNIT_PER.sub(unit_words, _WITH.sub(lambda match: _SLASHED.get(match[0], "with "), text))
        text = _VULGAR.sub(lambda match: set_apart(_FRACTIONS[match[1]], match), text)
        text = _HASHTAG.sub("hashtag ", _SHARP.sub(" sharp", text))
    has_figures = any(map(str.isdecimal, text))
    if has_sign or has_figures:
        text = _TWO_INITIALS.sub(lambda match: " ".join(match[0]), text)
    if has_figures:
        text = expand_figures(_LETTER_BEFORE_FIGURE.sub(" ", text))
    if has_inner_stop:
        text = _DOTTED_WORD.sub(lambda match: DOTTED_WORDS[small_letters(match[1])] + _stop_of(match), text)
        text = _LETTERS.sub(lambda match: match[1].replace(".", " ") + _stop_of(match), text)
    text = _MPH.sub("miles per hour", text)
    return _expand_signs(text) if has_sign else text


def _prepare_figures(text: str) -> str:
    """Return the text with the figures that later rules would misread in words or in another form."""
    text = _TYPED_POWER.sub(lambda match: RAISED[match[1]], _TIMES_TEN.sub(" times ", text))
    text = _EXPONENT.sub(
        lambda match: f"{match[1]} times 10 to the power of {'minus ' if match[2] == '-' else ''}", text
    )
    text = write_powers(text, "to the power of", "minus")
    text = _SQUARE_UNIT.sub(" \\1\u00b2", text)
    text = _PENSION_PLAN.sub(lambda match: set_apart(f"four oh {spoken(match[1])} {match[2] or match[3]}", match), text)
    text = _MILLION.sub(lambda match: f" {SCALES[match[1].lower()]}", _NUMBER_NO.sub("number ", text))
    text = _ARC.sub(_arc, text)
    text = _RUPEES.sub("\u20b9", _STOP_BEFORE_FIGURE.sub(r"\1. ", text))
    text = _OLD_ORDINAL.sub(r"\1rd", _FISCAL_YEAR.sub("F Y ", text))
    text = _HEXADECIMAL.sub(lambda match: f"zero x {' '.join(map(_digit, match[1]))}", text)
    text = _HOURS.sub(_hours, _ZIP_CODE.sub(lambda match: match[1] + " ".join(map(spoken, match[2])), text))
    text = _OIL_GRADE.sub(lambda match: f"{spoken(match[1])} W ", _PER_100_KM.sub(" per ", text))
    return _MODEL.sub(r"\1, ", text)


def _arc(match: re.Match[str]) -> str:
    parts = zip(match.groups()[:2], ("minute", "second"), strict=True)
    said = [f"{int(figure)} {unit}{'' if int(figure) == 1 else 's'}" for figure, unit in parts if figure]
    return " ".join(["\u00b0", *said, _COMPASS[match[3]]])


def _digit(character: str) -> str:
    return spoken(character) if character.isdecimal() else character


def _hours(match: re.Match[str]) -> str:
    """Return the hours of a clock of 24: `oh six hundred`, `fourteen thirty`."""
    hour, minute = (f"oh {spoken(part[1])}" if part[0] == "0" else spoken(part) for part in match.groups())
    return f"{hour} {'hundred' if match[2] == '00' else minute}"


def _expand_words_without_stop(text: str) -> str:
    text = _TITLE_BEFORE_NAME.sub(lambda match: ABBREVIATIONS.get(match[1].lower(), "saint"), text)
    # A search for plain words is faster than for a pattern.
    if "vs" in text or "etc" in text or "Jr" in text:
        text = _WITHOUT_STOP.sub(lambda match: ABBREVIATIONS[match[1].lower()], text)
    return _WEEKDAYS.sub(lambda match: f"{WEEKDAYS[match[1]]}-{WEEKDAYS[match[2]]}", text) if "-" in text else text


def _expand_abbreviations(text: str) -> str:
    text = _BEFORE_NAME.sub(lambda match: BEFORE_NAMES[match[1]], text)
    text = _CIRCA.sub("circa ", _AGAINST.sub(r"\1versus", text))
    text = _NUMBER_AHEAD.sub(lambda match: f"{BEFORE_NUMBERS[small_letters(match[1])]} ", text)
    text = _DRIVE.sub(lambda match: f"{match[1]}drive{_stop_before(match)}", text)
    text = _ABBREVIATION.sub(_abbreviation, text)
    text = _SAINT_OR_STREET.sub(_saint_or_street, text)
    text = _WEEKDAY.sub(lambda match: WEEKDAYS[match[1]], text)
    return _MONTH.sub(lambda match: month_of(match[1]) + full_stop(match), text)


def _expand_signs(text: str) -> str:
    text = _POWER.sub(lambda match: f" {set_apart(_POWERS[match[1]], match)}", text)
    text = _PER_PERIOD.sub(lambda match: f" per {unit_of(match[1])}", text)
    text = _BETWEEN_WORDS.sub(" ", text)
    return _SIGN.sub(lambda match: f" {set_apart(SIGNS[match[1]], match)}", text)


def _roman(match: re.Match[str]) -> str:
    """Return a Roman numeral in words, without the full stop of an old `Charles II. was`, or as it is."""
    words = _numeral(match)
    return words if words.startswith("the ") else words + (match["stop"] or "")


def _numeral(match: re.Match[str]) -> str:
    """Return a Roman numeral in words after a ruler, a chapter, a war and the like, and others as they are."""
    numeral, end = match["numeral"], match.end("numeral")
    before = match.string[max(0, match.start() - _LAST_WORDS_CHARACTERS) : match.start()]
    *others, word = (word.strip("\"'([") or "-" for word in before.split())
    is_capital = word[0].isupper()
    # The letter of a middle name: Henry V. Smith, but King Henry V. was.
    has_title = is_capital and not TITLES.isdisjoint(others[-2:])
    is_numbered = has_title or (is_capital and word.lower() in NUMBERED - {"mark"})
    if len(numeral) == 1 and match.string[end : end + 1] == "." and end + 1 < len(match.string) and not is_numbered:
        return numeral
    number = str(roman_value(numeral))
    if word == "the" and others and others[-1].capitalize() in RULERS:
        return spoken(number, "ordinal")
    if has_title or (is_capital and word.capitalize() in RULERS):
        is_ruler = numeral not in ("C", "L", "I") or (
            numeral == "I" and (has_title or _OF_A_RULER.match(match.string, end))
        )
        return f"the {spoken(number, 'ordinal')}" if is_ruler else numeral
    # Parts I and II
    if word in ("and", "or", "to") and len(others) > 1 and others[-1] in ("I", "II", "III", "IV", "V"):
        word, is_capital = others[-2], others[-2][0].isupper()
    if not NUMBERED.isdisjoint((word.lower(), word.lower().removesuffix("s"))):
        # Xbox Series X is the letter.
        is_pronoun = _is_pronoun(match, others, word) if numeral == "I" else (word, numeral) == ("Series", "X")
        return spoken(number) if len(numeral) > 1 or (numeral in "IVX" and is_capital and not is_pronoun) else numeral
    # John D. Rockefeller III, but not `This is plan A. Windows II came`.
    has_initial = len(others) > 1 and _INITIAL.fullmatch(others[-1]) and others[-2][0].isupper()
    has_initial = has_initial and numeral in ("II", "III", "IV")
    if is_capital and ((len(numeral) > 1 and others and others[-1] in RULERS) or has_initial):
        return f"the {spoken(number, 'ordinal')}"
    is_certain = numeral == "II" or (len(numeral) > 2 and set(numeral) <= set("IVX"))
    return spoken(number) if is_certain and is_capital and word.isalpha() else numeral


def _is_pronoun(match: re.Match[str], others: list[str], word: str) -> bool:
    """Return whether the I after the word, such as Book, is no numeral; `others` are those before the word."""
    is_heading = word.lower() in _HEADINGS
    is_world_war = word.lower() == "war" and others[-1:] in (["World"], ["WORLD"])
    # Chapter I Have a Dream, but not `Chapter I liked most`.
    is_title = is_heading and not others and match.string[match.end() + 1 : match.end() + 2].isupper()
    if is_world_war or is_title:
        return False
    among_capitals = word.isupper() and not is_heading and _PRONOUN_IN_CAPITALS.match(match.string, match.end())
    return bool(among_capitals or _PRONOUN.match(match.string, match.end()))


def _century(match: re.Match[str]) -> str:
    is_numeral = _ROMAN.fullmatch(f"a {match[1]}", 2) is not None
    return f"{spoken(str(roman_value(match[1])), 'ordinal')} " if is_numeral else match[0]


def _abbreviation(match: re.Match[str]) -> str:
    word = small_letters(match[1])
    # The sales dept. It is big. One letter may be an initial: Mr. A. Brown.
    is_initial = not match.string[match.end() + 2 : match.end() + 3].isalpha()
    if word in _MAY_END or not (is_initial or word in _ENDING):
        return ABBREVIATIONS[word] + _stop_before(match)
    return ABBREVIATIONS[word] + full_stop(match, before_capital=word in _ENDING)


def _saint_or_street(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 5) : match.start()]
    if before in ("Main ", "Wall ") or _STREET_PART.match(match.string, match.end()):
        return f"street{_stop_before(match)}"
    if _AFTER_SENTENCE.match(match.string, match.end()):
        return "street."
    follows = (match[1] or "").strip()
    return "saint" if follows.isalpha() and follows.isupper() else "street" + full_stop(match)


def _stop_of(match: re.Match[str]) -> str:
    """Return the last full stop of letters with full stops if it ends a sentence."""
    return _stop_before(match) if match[2] else ""


def _stop_before(match: re.Match[str]) -> str:
    """Return the full stop at the end of the text, or before a word that often begins a sentence."""
    return "." if _AFTER_SENTENCE.match(match.string, match.end()) else full_stop(match)
