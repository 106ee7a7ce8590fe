"""Read figures, signs and abbreviations aloud: what German, French and Spanish have in common.

A language subclasses Reading with its tables and with its own dates, times and ordinals. Each pattern is bounded or
cannot begin inside its own match, so reading takes time linear in the length of the text.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xtts_pipeline.text.languages.addresses import address_reader
from xtts_pipeline.text.languages.powers import read_low_digits, write_powers
from xtts_pipeline.text.numbers import MAX_DIGITS, plain_digits, set_apart, spell

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]

MASCULINE, FEMININE, NEUTER = "masculine", "feminine", "neuter"
# 1.250, 1 250, 1'250, 1,250,000 and the whole of 1,250.50 are one figure.
FIGURE = (
    r"(?:\d{1,3}(?:(?:\.\d{3}){1,4}|(?: \d{3}){1,4}|(?:'\d{3}){1,4}|(?:,\d{3}){2,4}|,\d{3}(?=\.\d\d?(?!\d)))(?!\d)|\d+)"
)
DECIMALS = r"(?:,(?P<{0}_decimals>\d+)|\.(?P<{0}_pointed>\d{{1,2}})(?!\d|\.\d))"
ROMAN = r"(?=[IVXL])(?:XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?!\w)"
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_ISO_DATE = re.compile(r"(?<![\w.,-])(\d{4})-(0\d|1[0-2])-([0-2]\d|3[01])(?![\w-])")
_DOTTED = re.compile(r"(?:(?<![\w.,])|(?<=\b[vV]))\d{1,4}(?:\.\d{1,4}){2,8}(?![\w]|[.,]\d)")
_VULGAR = str.maketrans({"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4"})
_MINUS = re.compile(r"(?<=\d) ?- ?(?=\d{1,15}(?:,\d{1,15})? ?=)|(?<![^\s(])-(?=[€$£¥]?\d)")
_MINUS_AFTER_CURRENCY = re.compile(r"([€$£¥]) ?-(?=\d)")
_RANGE_OF_UNITS = re.compile(r"(?<=[\d ][€$£%]) ?- ?(?=\d)")
_BY = re.compile(r"(?<=\d) ?x ?(?=\d)")
DATE = re.compile(r"(?<![\w.,/-])(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d\d)(?![\w/-]|[.,]\d)")
TIME_OF_SECONDS = re.compile(r"(?<![\w:.,])([01]?\d|2[0-4]):([0-5]\d):([0-5]\d)(?![\w:])")
SCORE = re.compile(r"(?<![\w.,:])(\d{1,3}):(\d{1,3})(?![\w:])")
# 1:25.000, 1:25 000 and 1:1000 are no times.
_MAP_SCALE = re.compile(
    r"(?<![\w.,:])(\d{1,3}):(\d{4,7}|\d{1,3}(?:\.\d{3}){0,2}\.\d00|(?<=\b1:)\d{1,3}(?: \d{3}){1,3})(?![\w:]|[.,]\d)"
)
# Line-ups, such as 4-4-2.
_CHAIN = re.compile(r"(?<![\w.,-])\d{1,2}(?:-\d{1,2}){2,}(?![\w-]|[.,]\d| ?=)")
_TWO_YEARS = re.compile(r"(?<![\w/.,])([12]\d{3})/(\d{4}|\d\d)(?![\w/.,]\d|\d)")
_MONTH_OF_YEAR = re.compile(r"(?<![\w/.,])(0?[1-9]|1[0-2])/([12]\d{3})(?![\w/.,]\d|\d)")
_LAST_WORDS_CHARACTERS = 60
# A number this long without separators is a telephone number or another code.
MIN_CODE_DIGITS = 9
# Capitalised, these are names or initials.
_ALWAYS_SMALL = frozenset(["max.", "min.", "m. E.", "i. A.", "e. V.", "a. C.", "d. C."])
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Noun:
    """A noun that follows a number."""

    one: str
    many: str
    gender: str = MASCULINE


@dataclass(frozen=True)
class Vocabulary:
    """The words of a language.

    abbreviations: spaces in them are optional; `number_abbreviations` only stand before a number, and
    `ending_abbreviations` keep their full stop before a capital letter.
    abbreviations_in_context: patterns of abbreviations that are names or words in other places.
    of: between a million and its unit, by the unit's first letter; "" is any other letter.
    address_signs: the signs in addresses, and `address_endings` those of sites of its countries.
    money: a sum from its words `whole`, `cents` and the name `cent`.
    """

    language: str
    decimal_comma: str
    decimal_point: str
    minus: str
    to: str
    versus: str
    slash: str
    per: str
    power: str
    money: str
    half: str
    months: Sequence[str]
    digits: Sequence[str]
    abbreviations: Mapping[str, str]
    number_abbreviations: Mapping[str, str]
    ending_abbreviations: frozenset[str]
    signs: Mapping[str, str]
    address_signs: Mapping[str, str]
    address_endings: str
    number_signs: Mapping[str, str]
    scales: Mapping[str, Noun]
    million: Noun
    units: Mapping[str, Noun]
    currencies: Mapping[str, Noun]
    cents: Mapping[str, Noun]
    fractions: Mapping[int, Noun]
    abbreviations_in_context: Mapping[str, str] = field(default_factory=dict)
    of: Mapping[str, str] = field(default_factory=lambda: {"": " "})

    @property
    def inner_points(self) -> frozenset[str]:
        """The abbreviations, without their points and in lower case, whose point seldom ends a sentence."""
        written = {*self.abbreviations, *self.number_abbreviations, *self.scales} - self.ending_abbreviations
        pointed = (word for words in written if words.endswith(".") for word in words.split())
        return frozenset(word.rstrip(".").lower() for word in pointed)


@dataclass(frozen=True)
class Counted:
    """A number in its place in the text, and the unit or scale that follows it, if any."""

    number: int
    match: re.Match[str]
    noun: Noun | None

    @property
    def before(self) -> list[str]:
        """The words before the number in lower case, the nearest first."""
        return [word.strip(".,;:()\"'").lower() for word in words_before(self.match, 2)]

    @property
    def word_after(self) -> str:
        """The word right after the number; empty if there is none."""
        is_beside = self.match.string[self.match.end() : self.match.end() + 1] == " "
        return word_after(self.match) if is_beside else ""


class Reading(ABC):
    """How a language reads figures aloud."""

    words: Vocabulary

    @property
    @abstractmethod
    def rules(self) -> Iterable[Rule]:
        """The language's own rules for text with digits, in order; they come before plain numbers."""

    @abstractmethod
    def expand_roman(self, text: str) -> str:
        """Return the text with the Roman numerals that are certain in words or in digits."""

    @abstractmethod
    def date(self, day: int, month: int, year: str | None) -> str:
        """Return a date in words, or in figures that later rules read; `year` has two or four digits."""

    @abstractmethod
    def half_of(self, whole: str | None, noun: Noun) -> str:
        """Return a half, or a number and a half, with its noun; `whole` is the number in digits."""

    @abstractmethod
    def and_a_half(self, whole: int) -> str:
        """Return a number and a half that has no noun."""

    @abstractmethod
    def noun(self, word: str) -> Noun | None:
        """Return a word of the text as a noun with its gender, or None if it is no noun."""

    @abstractmethod
    def form(self, counted: Counted) -> str:
        """Return the form of a number, such as `cardinal-feminine`, by the words around it."""

    def is_one(self, figure: str) -> bool:
        """Return whether a unit after this figure is in the singular."""
        return figure == "1"

    def cardinal(self, number: int, form: str = "numbering") -> str:
        """Return a number in words."""
        return spell(number, self.words.language, form)

    def expand(self, text: str) -> str:
        """Return the text without figures, abbreviations and signs."""
        text = write_powers(text, self.words.power, self.words.minus)
        text = self._read_addresses(read_low_digits(text, self.cardinal))
        text = self._number_abbreviation.sub(lambda match: f"{self._number_words[match[1]]} ", text)
        text = self._abbreviation.sub(self._abbreviated, text)
        if re.search("[IVXL]", text):
            text = self.expand_roman(text)
        text = self._number_sign.sub(lambda match: set_apart(f"{self.words.number_signs[match[1]]} ", match), text)
        text = text.translate(_VULGAR).replace("  ", " ")  # 1 ½ h
        if any(map(str.isdecimal, text)):
            text = _ISO_DATE.sub(lambda match: self.read_date(match, match[3], match[2], match[1]), text)
            for pattern, replace in self.rules:
                text = pattern.sub(replace, text)
            text = _RANGE_OF_UNITS.sub(f" {self.words.to} ", _BY.sub(" \u00d7 ", text))
            text = _MONTH_OF_YEAR.sub(r"\1 \2", _TWO_YEARS.sub(r"\1 \2", text))
            text = self._per_word.sub(f" {self.words.per} ", text)
            text = self._fraction_pattern.sub(self.fraction, _DOTTED.sub(self._dotted, text))
            text = _MINUS_AFTER_CURRENCY.sub(r"-\1", text)
            text = _MINUS.sub(f" {self.words.minus} ", text)
            text = self._quantity_pattern.sub(self._quantity, text)
        return self._sign.sub(lambda match: f" {set_apart(self.words.signs[match[1]], match)}", text)

    @property
    def rules_before_times(self) -> Iterable[Rule]:
        """The rules of all languages for figures that look like times."""
        return ((_MAP_SCALE, rf"\1 {self.words.versus} \2"), (_CHAIN, self._chain))

    def read_date(self, match: re.Match[str], day: str, month: str, year: str | None) -> str:
        """Return the date's words, or the match as it is if there is no such day."""
        if not (1 <= int(day) <= 31 and 1 <= int(month) <= 12):
            return match[0]
        return set_apart(self.date(int(day), int(month), year), match)

    def year(self, figure: str) -> str:
        """Return a year in words."""
        return self.digit_by_digit(figure) if figure.startswith("0") else self.cardinal(int(figure))

    def digit_by_digit(self, figure: str) -> str:
        """Return the digits of a figure in words; other characters are left out."""
        return " ".join(self.words.digits[int(digit)] for digit in figure if digit.isdecimal())

    def is_plain_number(self, figure: str) -> bool:
        """Return whether a figure is one number: it has no leading zero, and is not too long."""
        return len(figure) <= MAX_DIGITS and (figure[0] != "0" or len(figure) == 1)

    def decimals(self, figure: str) -> str:
        """Return up to three digits after the comma as a number, after its zeros; more digits one by one."""
        digits = figure.lstrip("0")
        if not digits or len(figure) > 3:
            return self.digit_by_digit(figure)
        return " ".join([*[self.words.digits[0]] * (len(figure) - len(digits)), self.cardinal(int(digits))])

    def groups(self, match: re.Match[str]) -> str:
        """Return a telephone number digit by digit, with a pause between its groups."""
        plus = f"{self.words.signs['+']} " if "+" in match[0] else ""
        return plus + ", ".join(self.digit_by_digit(group) for group in re.findall(r"\d+", match[0]))

    def _abbreviated(self, match: re.Match[str]) -> str:
        written = match[1].replace(" ", "")
        words = self._abbreviated_words[written]
        if not written.endswith("."):
            return words
        following = _WORD.match(match.string, match.end() + 1)
        may_end = written[0].lower() + written[1:] in self.words.ending_abbreviations
        ends_sentence = may_end and following is not None and following[0][0].isupper()
        return f"{words}." if match.end() == len(match.string) or ends_sentence else words

    def _chain(self, match: re.Match[str]) -> str:
        joint = "-" if re.search(r"\d\d", match[0]) is None else ", "
        return joint.join(map(self.year, match[0].split("-")))

    def _dotted(self, match: re.Match[str]) -> str:
        parts = match[0].split(".")
        if all(len(part) == 3 for part in parts[1:]) and len(parts[0]) <= 3 and parts[0] != "0":
            return match[0]  # thousands
        words = (
            self.cardinal(int(part)) if self.is_plain_number(part) else self.digit_by_digit(part) for part in parts
        )
        return set_apart(f" {self.words.decimal_point} ".join(words), match)

    def fraction(self, match: re.Match[str]) -> str:
        """Return a fraction in words, with the unit or word after it."""
        whole, above, below = match["whole"], int(match["above"]), int(match["below"])
        part = self.words.fractions.get(below)
        unit = self.words.units[match["unit"]] if match["unit"] else None
        noun = unit or (self.noun(match["word"]) if match["word"] else None)
        word = f" {match['word']}" if match["word"] else ""
        if (above, below) == (1, 2) and noun is not None:
            return self.half_of(whole, noun)
        if (above, below) == (1, 2):
            words = self.and_a_half(int(whole)) if whole else self.words.half
            return set_apart(words, match) + word
        if part is None or not 0 < above < below:
            joint = " " if (above, below) == (24, 7) else f" {self.words.slash} "
            return match[0] if whole or unit else f"{match['above']}{joint}{match['below']}{word}"
        form = f"cardinal-{part.gender}" if above == 1 else "numbering"
        words = f"{self.cardinal(above, form)} {part.one if above == 1 else part.many}"
        words = f"{self.cardinal(int(whole))} {self.words.signs['&']} {words}" if whole else words
        return set_apart(f"{words}{self._of(unit)}{unit.one}" if unit else words, match) + word

    def _quantity(self, match: re.Match[str]) -> str:
        per = f" {self.words.per} {self.words.units[match['per']].one}" if match["per"] else ""
        is_end = match[0].endswith(".") and match.end() == len(match.string)
        return set_apart(f"{self._quantity_words(match)}{per}{'.' if is_end else ''}", match)

    def _quantity_words(self, match: re.Match[str]) -> str:
        unit_key = match["unit"] or match["currency"]
        unit = (self.words.currencies.get(unit_key) or self.words.units[unit_key]) if unit_key else None
        scale = self.words.scales[match["scale"]] if match["scale"] else None
        low, decimals = _digits(match, "low")
        if unit is not None and scale is None and match["high"] is None and _is_millions(low) and not decimals:
            low, scale = low.removesuffix("000000"), self.words.million
        if unit_key in self.words.cents and len(decimals) == 2 and scale is None and match["high"] is None:
            return self._money(unit_key, low, decimals)
        noun = scale or unit
        is_height = unit_key == "m" and scale is None and len(decimals) == 2 and decimals[0] != "0"
        if unit is not None and is_height and match["high"] is None and len(low) <= MAX_DIGITS:
            return f"{self._counted(int(low), unit)} {self.cardinal(int(decimals))}"
        words = self._amount(match, "low", low, decimals, noun)
        last, last_decimals = low, decimals
        if match["high"] is not None:
            last, last_decimals = _digits(match, "high")
            is_years = len(low) == 4 and len(last) == 2
            is_larger = self.is_plain_number(low) and (len(last) > MAX_DIGITS or int(last) > int(low))
            is_range = is_years or is_larger or noun is not None
            words += f" {self.words.to if is_range else self.words.versus} "
            words += self._amount(match, "high", last, last_decimals, noun)
        if noun is not None:
            is_one = self.is_one(f"{last}.{last_decimals}" if last_decimals else last)
            words += f" {noun.one if is_one else noun.many}"
        if scale is not None and unit is not None:
            words += f"{self._of(unit)}{unit.many}"
        return words

    def _amount(self, match: re.Match[str], end: str, digits: str, decimals: str, noun: Noun | None) -> str:
        is_code = len(digits) >= MIN_CODE_DIGITS and match[end].isdecimal()
        if is_code or not self.is_plain_number(digits):
            words = self.digit_by_digit(digits)
        elif decimals:
            words = self.cardinal(int(digits))
        else:
            words = self.cardinal(int(digits), self.form(Counted(int(digits), match, noun)))
        if decimals:
            mark = self.words.decimal_comma if match[f"{end}_decimals"] else self.words.decimal_point
            words += f" {mark} {self.decimals(decimals)}"
        return words

    def _money(self, symbol: str, whole: str, decimals: str) -> str:
        unit, cent = self.words.currencies[symbol], self.words.cents[symbol]
        if len(whole) > MAX_DIGITS:
            return f"{self.digit_by_digit(whole)} {unit.many}"
        if not int(decimals):
            return self._counted(int(whole), unit)
        if not int(whole):
            return self._counted(int(decimals), cent)
        # Without its name after it, the number of cents agrees with nothing.
        form = f"cardinal-{cent.gender}" if "{cent}" in self.words.money else "numbering"
        cents = self.cardinal(int(decimals), form)
        name = cent.one if int(decimals) == 1 else cent.many
        return self.words.money.format(whole=self._counted(int(whole), unit), cents=cents, cent=name)

    def _of(self, unit: Noun) -> str:
        return self.words.of.get(unit.many[0].lower(), self.words.of[""])

    def _counted(self, number: int, noun: Noun) -> str:
        words = self.cardinal(number, f"cardinal-{noun.gender}")
        return f"{words} {noun.one if self.is_one(str(number)) else noun.many}"

    @cached_property
    def _read_addresses(self) -> Callable[[str], str]:
        return address_reader(self.words.address_signs, self.words.address_endings)

    @cached_property
    def _per_word(self) -> re.Pattern[str]:
        # A quantity takes its own unit: 0,289 €/kWh.
        return re.compile(rf"(?<=[€$£¥])/(?!(?:{alternatives(self.words.units)})(?!['\w]))(?=[^\W\d_]{{3}})")

    @cached_property
    def _fraction_pattern(self) -> re.Pattern[str]:
        return re.compile(
            r"(?<![\w/.,:-])(?:(?P<whole>\d{1,3}) )?(?P<above>\d{1,2})/(?P<below>\d{1,2})(?![\w/]|[.,]\d)"
            rf"(?: (?P<unit>{alternatives(self.words.units)})(?!['\w])| (?P<word>[^\W\d_]{{1,30}}))?"
        )

    @cached_property
    def _quantity_pattern(self) -> re.Pattern[str]:
        symbols = alternatives(symbol for symbol in self.words.currencies if not symbol.isalpha())
        codes = alternatives(code for code in self.words.currencies if code.isalpha() and code.isupper())
        units = alternatives([*self.words.units, *self.words.currencies])
        return re.compile(
            rf"(?:(?P<currency>{symbols}|(?<!\w)(?:{codes})) ?)?"
            rf"(?P<low>{FIGURE}){DECIMALS.format('low')}?"
            rf"(?:(?: ?- ?| {self.words.to} )(?P<high>{FIGURE}){DECIMALS.format('high')}?(?![\d-]))?"
            rf"(?: ?(?P<scale>{alternatives(self.words.scales)})(?!\w))?(?:(?: d'|[ -])?(?P<unit>{units})(?!['\w]))?"
            rf"(?:/(?P<per>{alternatives(self.words.units)})(?!['\w]))?"
        )

    @cached_property
    def _abbreviated_words(self) -> Mapping[str, str]:
        return {written.replace(" ", ""): words for written, words in self._written_abbreviations.items()}

    @cached_property
    def _written_abbreviations(self) -> Mapping[str, str]:
        small = self.words.abbreviations.keys() - _ALWAYS_SMALL
        capitalised = {_capitalised(written): _capitalised(self.words.abbreviations[written]) for written in small}
        return {**capitalised, **self.words.abbreviations}

    @cached_property
    def _abbreviation(self) -> re.Pattern[str]:
        anywhere = self._written_abbreviations.keys() - self.words.abbreviations_in_context.keys()
        written = alternatives(anywhere).replace(r"\ ", " ?")
        written = "|".join([written, *self.words.abbreviations_in_context.values()])
        # 5 min. are minutes.
        units = alternatives(self.words.units)
        return re.compile(rf"(?<![\w.])(?!(?<=\d )(?:{units})\.)({written})(?!\w)")

    @cached_property
    def _number_words(self) -> Mapping[str, str]:
        words = self.words.number_abbreviations
        return {**{written.capitalize(): said for written, said in words.items()}, **words}

    @cached_property
    def _number_abbreviation(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w.])({alternatives(self._number_words)}) ?(?=\d|[IVXL]+(?!\w))")

    @cached_property
    def _number_sign(self) -> re.Pattern[str]:
        return re.compile(rf"(?<!\w)({alternatives(self.words.number_signs)}) ?(?=\d)")

    @cached_property
    def _sign(self) -> re.Pattern[str]:
        return re.compile(f" ?({alternatives(self.words.signs)})")


def alternatives(words: Iterable[str]) -> str:
    """Return a pattern that matches any of the words, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _capitalised(words: str) -> str:
    return words[0].upper() + words[1:]


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


def roman_value(numeral: str) -> int:
    """Return the value of a Roman numeral of I, V, X, L and C."""
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    return sum(
        -value if value < following else value for value, following in zip(values, [*values[1:], 0], strict=True)
    )


def words_before(match: re.Match[str], count: int) -> list[str]:
    """Return up to `count` words that end right before the match, the nearest first, each with its comma."""
    before = match.string[max(0, match.start() - _LAST_WORDS_CHARACTERS) : match.start()]
    return before.split()[: -count - 1 : -1]


def word_after(match: re.Match[str]) -> str:
    """Return the word after the match, without its punctuation; empty if there is none."""
    found = _WORD.match(match.string, match.end() + (match.string[match.end() : match.end() + 1] == " "))
    return found[0] if found else ""


def _is_millions(digits: str) -> bool:
    return 7 <= len(digits) <= 9 and digits.endswith("000000")


def _digits(match: re.Match[str], end: str) -> tuple[str, str]:
    """Return the digits of the `low` or `high` end before and after its comma; the comma of $1,250 is for thousands."""
    digits, decimals = plain_digits(match[end]), match[f"{end}_decimals"] or match[f"{end}_pointed"] or ""
    is_thousand = match["currency"] and not match["scale"] and digits != "0" and len(digits) <= 3 == len(decimals)
    return (digits + decimals, "") if is_thousand else (digits, decimals)
