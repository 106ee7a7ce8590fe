"""Read French figures, signs and abbreviations aloud, in traditional spelling: hyphens below a hundred only."""

import re
from collections.abc import Iterable

from xtts_pipeline.text.languages.reading import (
    DATE,
    FEMININE,
    MASCULINE,
    ROMAN,
    SCORE,
    TIME_OF_SECONDS,
    Counted,
    Noun,
    Reading,
    Rule,
    Vocabulary,
    roman_value,
    word_set,
)
from xtts_pipeline.text.numbers import set_apart

# Letters of XXᵉ, 1ᵉʳ and Mˡˡᵉ.
_RAISED_LETTERS = str.maketrans("ᵈᵉᵍⁱˡᵐʳˢᵗ", "degilmrst")
# And a few adjectives that stand before a noun.
_FEMININE_NOUNS = word_set(
    "heure minute seconde tonne livre personne fois femme fille page année semaine journée nuit voiture maison ville "
    "partie équipe place étoile pomme bouteille tasse table chambre lettre image ligne pièce école église route "
    "rue chose idée piste marche couleur carte photo victoire défaite médaille course étape "
    "sœur mère tante cousine amie voix pinte dose cuillère tranche gousse feuille boîte petite grande seule belle bonne"
)
_FEMININE_ENDINGS = ("tion", "sion", "ette", "ance", "ée", "ité", "euse", "trice")
_MASCULINE_NOUNS = word_set("musée lycée trophée silence comité")
# Only these are followed by a numeral of one letter.
_KINGS = word_set(
    "Charles Henri Louis Philippe Jean François Georges Édouard Guillaume Napoléon Alexandre Nicolas Pierre Paul Pie "
    "Grégoire Benoît Léon Clément Innocent Urbain Jacques Frédéric Albert Léopold Humbert Ferdinand Alphonse"
)
_LABELS = (
    "[Cc]hapitre|[Tt]ome|[Aa]cte|[Ll]ivre|[Pp]artie|[Ss]cène|[Vv]olume|[Tt]itre|[Aa]rticle|[Pp]hase|[Tt]ype|[Aa]nnexe"
)
# The L of `article L. 121-1` is a letter.
_LABELLED_ROMAN = re.compile(rf"(?<!\w)({_LABELS}) (?!(?<=rticle )L(?!\w))({ROMAN})(?!')")
_ROYAL = re.compile(rf"(?<!\w)([A-ZÀÂÉÈÊÎÔ][a-zàâçéèêëîïôûü]{{2,20}}) ({ROMAN})(?![.']\w)")
# The letter of a name cut short: Jean V., 34 ans; Paul L. est parti.
_CUT_SHORT = re.compile(r"\.(?:,| [a-zà-ÿ])")
_ROMAN_ORDINAL = re.compile(r"(?<!\w)(?:(I)(er|re|ère)|([IVX][IVXL]{0,8})(e|ème)s?)(?!\w)")
_ORDINAL = re.compile(
    r"(?<![\w.,])(?<!\d )(\d{1,3}(?: \d{3}){1,3}|\d{1,4})"
    r"(?:(ers?)|(i?[èe]res?|res?)|(nds?|d)|(ndes?|de)|(i?[eè]me?s?|es?))(?!['\w])"
)
_MONTHS = (
    "janvier",
    "février",
    "mars",
    "avril",
    "mai",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
)
_FIRST_OF_MONTH = re.compile(rf"(?<![\w.,/-])1(?= (?:{'|'.join(_MONTHS)})(?!\w))")
_SHORT_DATE = re.compile(r"(?:(?<=[Ll]e )|(?<=[Dd]u )|(?<=[Aa]u ))(\d{1,2})/(\d{1,2})(?![\w/]|[.,]\d)")
_TIME_RANGE = re.compile(
    r"(?<=[\dh:]\d\d)-(?=\d{1,2}[h:]\d\d)|(?<=[h:]\d\d) - (?=\d{1,2}[h:]\d\d)|(?<=[hH]\d\d)-(?=\d{1,2} ?[hH])"
    r"|(?<=[hH]\d\d) - (?=\d{1,2} ?[hH](?![a-zà-ÿ]))"
    r"|(?:(?<=\d)|(?<=\d[hH])|(?<=\d [hH])) ?- ?(?=(?:[01]?\d|2[0-4]) ?[hH](?!\w|/))|(?<=\dh) ?- ?(?=\d{1,2} ?h)"
)
_HEIGHT = re.compile(r"(?<![\w.,])(\d) ?m ?(\d\d)(?!\w|[.,]\d)")
_TIME = re.compile(
    r"(?<![\w:.,/])([01]?\d|2[0-4])(?: ?[hH](?!\w)(?: ?([0-5]\d)(?!\d)(?: ?min(?!\w))?)?"
    r"|[hH]([0-5]\d)(?: ?min)?|:([0-5]\d))(?![\w:])"
)
_TIME_IN_SECONDS = re.compile(r"(?<![\w:.,/])([01]?\d|2[0-4]) ?h ?([0-5]?\d) ?min ?([0-5]?\d) ?s(?!\w)")
_FINALS = re.compile(r"(?<![\w/.,:-])1/(?:2 (?=finales?(?!\w))|4 (?=de finale)|8 (?=de finale))")
_FINALS_SAID = {"1/2 ": "demi-", "1/4 ": "quart ", "1/8 ": "huitième "}
_ONE_OR_TWO = re.compile(r"(?<![\w.,])1(?= ou 2 ([^\W\d_]{1,30}))")
_ELIDED = re.compile(r"(?<!\w)([Dd]|[Qq]u)e (?=1 [^\W\d_]{2})")
_OF_ALL = re.compile(r"(?<!\w)(24) ?h/24(?!\w)|(?<!\w)(7) ?j/7(?!\w)")
_NOT_NOUNS = word_set("de du des la le les un une et ou à au aux en est sur pour par dans")
_EUROS_CENTS = re.compile(r"(?<=\d)€(\d\d)(?!\d)")
_PHONE = re.compile(r"(?<![\w.,])(?:(\+\d{1,3}) ?(?:\(0\) ?)?(\d)|(0\d))((?:[ .-]?\d\d){4})(?![\w-]|[.,]\d)")


_WORDS = Vocabulary(
    language="fr",
    decimal_comma="virgule",
    decimal_point="point",
    minus="moins",
    to="à",
    versus="à",
    slash="sur",
    per="par",
    power="puissance",
    million=Noun("million", "millions"),
    money="{whole} {cents}",
    of={**dict.fromkeys("aeéiouhy", " d'"), "": " de "},
    months=_MONTHS,
    digits=("zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"),
    abbreviations={
        "M.": "monsieur", "MM.": "messieurs", "Mme": "madame", "Mmes": "mesdames", "Mlle": "mademoiselle",
        "Mlles": "mesdemoiselles", "Mgr": "monseigneur",
        "Dr": "docteur", "Dr.": "docteur", "Pr": "professeur", "Prof.": "professeur",
        "St-": "saint-", "Ste-": "sainte-", "St": "saint", "Ste": "sainte", "av. J.-C.": "avant Jésus-Christ",
        "apr. J.-C.": "après Jésus-Christ", "ap. J.-C.": "après Jésus-Christ", "etc.": "et cetera",
        "c.-à-d.": "c'est-à-dire", "p. ex.": "par exemple", "env.": "environ", "tél.": "téléphone",
        "Tél.": "téléphone", "Bd": "boulevard", "bd.": "boulevard", "av.": "avenue",
        "cf.": "confer", "Cie": "compagnie", "max.": "maximum", "min.": "minimum",
        "éd.": "édition", "s.v.p.": "s'il vous plaît", "janv.": "janvier", "févr.": "février", "juil.": "juillet",
        "fév.": "février", "avr.": "avril", "oct.": "octobre", "nov.": "novembre", "déc.": "décembre",
    },
    number_abbreviations={
        "n°": "numéro", "nº": "numéro", "no": "numéro", "n°s": "numéros",
        "p.": "page", "pp.": "pages", "sept.": "septembre",  # elsewhere `sept.` is the number seven
        "vol.": "volume", "chap.": "chapitre", "art.": "article", "fig.": "figure",
    },
    abbreviations_in_context={
        # Elsewhere M. is an initial.
        "M.": r"(?<![A-ZÀ-Ý]\. )M\.(?= (?:[A-ZÀ-Ý]|l[ea] |l'|d'|d[eu] |et M))",
        "max.": r"max\.(?= ?\d)", "min.": r"min\.(?= ?\d)",
    },
    ending_abbreviations=frozenset(["etc.", "s.v.p."]),
    signs={
        "&": "et", "+": "plus", "=": "égale", "%": "pour cent", "‰": "pour mille", "@": "arobase", "§": "paragraphe",
        "€": "euros", "$": "dollars", "£": "livres", "°": "degrés", "×": "fois", "÷": "divisé par", "²": "au carré",
        "³": "au cube", "#": "hashtag", "±": "plus ou moins", "<": "inférieur à", ">": "supérieur à",
    },
    address_signs={
        ".": "point", "/": "barre oblique", "-": "tiret", "_": "tiret bas", "@": "arobase", ":": "deux-points",
        "~": "tilde", "?": "point d'interrogation", "=": "égale", "&": "et", "#": "dièse", "+": "plus",
        "%": "pour cent",
    },
    address_endings="fr|be|ch|ca",
    number_signs={"#": "numéro", "№": "numéro", "§§": "paragraphes"},
    scales={
        "million": Noun("million", "millions"), "millions": Noun("million", "millions"),
        "milliard": Noun("milliard", "milliards"), "milliards": Noun("milliard", "milliards"),
        "Md": Noun("milliard", "milliards"), "Mds": Noun("milliard", "milliards"),
        "M": Noun("million", "millions"),
    },
    units={
        "%": Noun("pour cent", "pour cent"), "‰": Noun("pour mille", "pour mille"),
        "km/h": Noun("kilomètre à l'heure", "kilomètres à l'heure"),
        "mm²": Noun("millimètre carré", "millimètres carrés"), "km³": Noun("kilomètre cube", "kilomètres cubes"),
        "m/s²": Noun("mètre par seconde carrée", "mètres par seconde carrée"),
        "m/s": Noun("mètre par seconde", "mètres par seconde"), "km": Noun("kilomètre", "kilomètres"),
        "m": Noun("mètre", "mètres"), "cm": Noun("centimètre", "centimètres"), "mm": Noun("millimètre", "millimètres"),
        "km²": Noun("kilomètre carré", "kilomètres carrés"), "m²": Noun("mètre carré", "mètres carrés"),
        "cm²": Noun("centimètre carré", "centimètres carrés"), "m³": Noun("mètre cube", "mètres cubes"),
        "cm³": Noun("centimètre cube", "centimètres cubes"), "ha": Noun("hectare", "hectares"),
        "kg": Noun("kilogramme", "kilogrammes"), "g": Noun("gramme", "grammes"),
        "mg": Noun("milligramme", "milligrammes"), "t": Noun("tonne", "tonnes", FEMININE),
        "l": Noun("litre", "litres"), "L": Noun("litre", "litres"), "cl": Noun("centilitre", "centilitres"),
        "ml": Noun("millilitre", "millilitres"), "°C": Noun("degré Celsius", "degrés Celsius"),
        "°F": Noun("degré Fahrenheit", "degrés Fahrenheit"), "°": Noun("degré", "degrés"),
        **dict.fromkeys(["min", "min."], Noun("minute", "minutes", FEMININE)),
        "s": Noun("seconde", "secondes", FEMININE),
        "heure": Noun("heure", "heures", FEMININE),
        "h": Noun("heure", "heures", FEMININE), "heures": Noun("heure", "heures", FEMININE),
        "kWh": Noun("kilowattheure", "kilowattheures"), "kW": Noun("kilowatt", "kilowatts"),
        "MW": Noun("mégawatt", "mégawatts"), "W": Noun("watt", "watts"), "V": Noun("volt", "volts"),
        "Hz": Noun("hertz", "hertz"), "kHz": Noun("kilohertz", "kilohertz"), "MHz": Noun("mégahertz", "mégahertz"),
        "GHz": Noun("gigahertz", "gigahertz"), "Mo": Noun("mégaoctet", "mégaoctets"),
        "Go": Noun("gigaoctet", "gigaoctets"), "To": Noun("téraoctet", "téraoctets"), "dB": Noun("décibel", "décibels"),
    },
    currencies={
        "€": Noun("euro", "euros"), "EUR": Noun("euro", "euros"), "euros": Noun("euro", "euros"),
        "$": Noun("dollar", "dollars"), "USD": Noun("dollar", "dollars"), "£": Noun("livre", "livres", FEMININE),
        "¥": Noun("yen", "yens"), "CHF": Noun("franc suisse", "francs suisses"),
    },
    cents={
        **dict.fromkeys(["€", "EUR", "euros"], Noun("centime", "centimes")),
        **dict.fromkeys(["$", "USD"], Noun("cent", "cents")),
        "£": Noun("penny", "pence"), "CHF": Noun("centime", "centimes"),
    },
    half="un demi",
    fractions={
        3: Noun("tiers", "tiers"), 4: Noun("quart", "quarts"),
        5: Noun("cinquième", "cinquièmes"), 8: Noun("huitième", "huitièmes"),
    },
)  # fmt: skip


class French(Reading):
    """French: `une heure`, `le premier mai`, telephone numbers in pairs."""

    words = _WORDS

    @property
    def rules(self) -> Iterable[Rule]:
        """Return the rules of dates, times, ordinals and telephone numbers."""
        return (
            (_FINALS, lambda match: _FINALS_SAID[match[0]]),
            (DATE, lambda match: self.read_date(match, match[1], match[3], match[4])),
            (_SHORT_DATE, lambda match: self.read_date(match, match[1], match[2], None)),
            (_PHONE, self._phone),
            (_EUROS_CENTS, r",\1 €"),
            (_OF_ALL, lambda match: "24 heures sur 24" if match[1] else "7 jours sur 7"),
            (_ONE_OR_TWO, lambda match: "une" if _gender(match[1]) == FEMININE else match[0]),
            (_ELIDED, lambda match: f"{match[1]}'"),
            (_FIRST_OF_MONTH, "premier"),
            *self.rules_before_times,
            (_TIME_RANGE, f" {self.words.to} "),
            (TIME_OF_SECONDS, self._time_of_seconds),
            (_TIME_IN_SECONDS, self._time_of_seconds),
            (_HEIGHT, r"\1 m \2"),
            (_TIME, self._time),
            (SCORE, rf"\1 {self.words.versus} \2"),
            (_ORDINAL, self._ordinal),
        )

    def cardinal(self, number: int, form: str = "numbering") -> str:
        """Return a number in traditional spelling: `vingt et un`."""
        return super().cardinal(number, form).replace("-et-", " et ")

    def expand(self, text: str) -> str:
        """Return the text without figures, abbreviations and signs."""
        text = text.replace("nᵒ", "n°").replace("Nᵒ", "N°").replace("ⁿᵈ", "nd")
        return super().expand(text.translate(_RAISED_LETTERS))

    def expand_roman(self, text: str) -> str:
        """Return the text with the numerals of rulers, chapters and centuries in digits."""
        text = _LABELLED_ROMAN.sub(lambda match: f"{match[1]} {roman_value(match[2])}", text)
        text = _ROYAL.sub(self._royal, text)
        return _ROMAN_ORDINAL.sub(lambda match: f"{roman_value(match[1] or match[3])}{match[2] or 'e'}", text)

    def date(self, day: int, month: int, year: str | None) -> str:
        """Return `quatorze juillet mille sept cent quatre-vingt-neuf`."""
        said = ["premier" if day == 1 else self.cardinal(day), self.words.months[month - 1]]
        return " ".join([*said, self.year(year)] if year else said)

    def half_of(self, whole: str | None, noun: Noun) -> str:
        """Return `une demi-heure` or `deux heures et demie`."""
        end = "e" if noun.gender == FEMININE else ""
        if whole:
            number = self.cardinal(int(whole), f"cardinal-{noun.gender}")
            return f"{number} {noun.one if int(whole) < 2 else noun.many} et demi{end}"
        return f"un{end} demi-{noun.one}"

    def and_a_half(self, whole: int) -> str:
        """Return `deux et demi`."""
        return f"{self.cardinal(whole)} et demi"

    def noun(self, word: str) -> Noun | None:
        """Return any word that is no function word."""
        return None if word.lower() in _NOT_NOUNS else Noun(word, word, _gender(word))

    def form(self, counted: Counted) -> str:
        """Return the gender of the unit, or of the noun after the number."""
        return f"cardinal-{counted.noun.gender if counted.noun else _gender(counted.word_after)}"

    def is_one(self, figure: str) -> bool:
        """Return whether a unit is in the singular: below two."""
        return float(figure) < 2

    def _royal(self, match: re.Match[str]) -> str:
        name, numeral = match[1], match[2]
        is_letter = len(numeral) == 1 and (name not in _KINGS or _CUT_SHORT.match(match.string, match.end()))
        if is_letter or numeral == "XL":  # a size
            return match[0]
        value = roman_value(numeral)
        return f"{name} {'premier' if value == 1 else value}"

    def _ordinal(self, match: re.Match[str]) -> str:
        number, (first, first_feminine, second, second_feminine, _) = int(match[1].replace(" ", "")), match.groups()[1:]
        plural = "s" if match[0].endswith("s") else ""
        if (second or second_feminine) and number == 2:
            return f"second{'e' if second_feminine else ''}{plural}"
        gender = "feminine" if first_feminine or second_feminine else "masculine"
        if number == 1 and not (first or first_feminine):
            gender = "masculine"
        return f"{super().cardinal(number, f'ordinal-{gender}').replace('-et-', ' et ')}{plural}"

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = int(match[1]), int(match[2] or match[3] or match[4] or 0)
        said = f"{self.cardinal(hour, 'cardinal-feminine')} {'heure' if hour < 2 else 'heures'}"
        return set_apart(f"{said} {self.cardinal(minute, 'cardinal-feminine')}" if minute else said, match)

    def _time_of_seconds(self, match: re.Match[str]) -> str:
        hours, minutes, seconds = map(int, match.groups())
        if not seconds:
            return f"{hours} h {match[2]} min"
        # With the word for minutes: trente cinq secondes would be 35 of them.
        parts = [(hours, "heure"), *([(minutes, "minute")] if minutes else []), (seconds, "seconde")]
        return " ".join(self._counted(number, Noun(word, f"{word}s", FEMININE)) for number, word in parts)

    def _phone(self, match: re.Match[str]) -> str:
        code, first, own, rest = match.groups()
        pairs = re.findall(r"\d\d", rest)
        start = [f"plus {self.cardinal(int(code[1:]))}", self.cardinal(int(first))] if code else [self._pair(own)]
        return ", ".join([*start, *map(self._pair, pairs)])

    def _pair(self, pair: str) -> str:
        return self.digit_by_digit(pair) if pair[0] == "0" else self.cardinal(int(pair))


def _gender(noun: str) -> str:
    singular = noun.lower().removesuffix("s")
    is_feminine = bool({singular, noun.lower()} & _FEMININE_NOUNS) or singular.endswith(_FEMININE_ENDINGS)
    return FEMININE if is_feminine and singular not in _MASCULINE_NOUNS else MASCULINE
