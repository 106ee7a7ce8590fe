"""Read German figures, signs and abbreviations aloud."""

import re
from collections.abc import Iterable

from xtts_pipeline.text.languages.reading import (
    FEMININE,
    MASCULINE,
    NEUTER,
    ROMAN,
    SCORE,
    Counted,
    Noun,
    Reading,
    Rule,
    Vocabulary,
    roman_value,
    word_after,
    word_set,
    words_before,
)
from xtts_pipeline.text.numbers import set_apart, spell

_ENDING_N = word_set(
    "am im vom zum zur beim dem den des bis ab seit "
    "einem einen einer eines keinem keinen keiner keines diesem diesen jedem jeden "
    "meinem meinen meiner meines seinem seinen seiner seines ihrem ihren ihrer ihres unserem unseren unserer"
)
_ENDING_E = word_set(
    "die das ins ans aufs fürs eine keine meine seine ihre unsere diese dieser dieses jede jeder jedes"
)
_THE = frozenset(["der"])
_MIXED = word_set("ein kein mein dein sein ihr unser euer")
_DATIVE = word_set("in an auf mit nach von zu bei aus vor über unter neben hinter zwischen seit ab während wegen trotz")
_ACCUSATIVE = word_set("für gegen durch ohne um")
_TRANSITIVE = word_set("habe hast hat haben hatte hatten brauche braucht brauchen")
_WEEKDAYS = word_set("montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag")
_FEMININE_NOUNS = word_set(
    "Frau Stunde Minute Sekunde Woche Person Seite Stadt Meile Note Auflage Liga Klasse Runde Etage Hälfte Symphonie "
    "Sinfonie Ausgabe Reihe Folge Stufe Staffel Nacht Welle Schicht Straße Flasche Tasse Katze Frage Antwort Halbzeit "
    "Tochter Schwester Mutter Tür Bank"
)
_MASCULINE_NOUNS = word_set(
    "Weltkrieg Bruder Sohn Vater Mann Hund Liter Meter Kilometer Platz Stock Tag Monat Preis Teil Band Akt Satz "
    "Schritt Versuch Geburtstag Advent Euro Januar Jänner Februar März April Mai Juni Juli August September Oktober "
    "November Dezember FC Bezirk Rang Gang Sieger Absatz Artikel Kongress Punkt Abschnitt Apfel Tisch"
)
_NEUTER_NOUNS = word_set(
    "Kapitel Mal Jahr Jahrhundert Jahrtausend Kind Tor Haus Buch Quartal Semester Viertel Drittel Stockwerk "
    "Obergeschoss Gebot Leben Spiel Treffen Bier Auto Zimmer Prozent Kilo Pfund"
)
_NOUN_GENDERS = {
    **dict.fromkeys(_FEMININE_NOUNS, FEMININE),
    **dict.fromkeys(_MASCULINE_NOUNS, MASCULINE),
    **dict.fromkeys(_NEUTER_NOUNS, NEUTER),
}
_FEMININE_ENDINGS = ("ung", "heit", "keit", "schaft", "ion", "tät")
# Most nouns in -e are feminine. These are not, or are of either gender.
_NOT_FEMININE = word_set(
    "Name Kunde Junge Kollege Ende Auge Käse Gemüse Zeuge Experte Kaffee Tee See Schnee Buchstabe Gedanke Wille Funke "
    "Löwe Hase Affe Bote Erbe Neffe Riese Sklave Biologe Psychologe Franzose Russe Chinese Pole Türke Grieche Däne "
    "Schwede Brite Jude Ochse Rabe Falke Drache Interesse Gebäude Gebirge Gelände Gemälde Getreide Gewebe Knie Genie "
    "Klischee Update Code Smartphone Byte Megabyte Gigabyte Service"
)
_QUEENS = word_set(
    "Elisabeth Elizabeth Katharina Maria Margarethe Margrethe Anna Viktoria Victoria Christina Isabella Johanna"
)
# Only these are followed by a numeral of one letter: Peter V. is more often a name cut short.
_RULERS = _QUEENS | word_set(
    "Karl Ludwig Wilhelm Friedrich Heinrich Otto Franz Josef Joseph Leopold Maximilian Georg Philipp Johannes Paul "
    "Pius Alexander Nikolaus Konrad Rudolf Ferdinand Napoleon Jakob Christian Gustav Eduard Albrecht Sigismund"
)
_YEAR_CUES = word_set(
    "jahr jahre jahren anno seit bis in ab vor nach um von sommer winter herbst frühjahr frühling anfang mitte ende "
    "januar februar märz april mai juni juli august september oktober november dezember"
)
_NAME = r"(?<!\w)(?P<name>[A-ZÄÖÜ][a-zäöüß]{2,20}) "
_LABELS = "Kapitel|Seite|Nummer|Band|Teil|Akt|Abschnitt|Artikel|Stufe|Typ|Klasse|Buch|Szene|Tafel|Anhang|Phase|Hartz"
_LABELLED_ROMAN = re.compile(rf"(?<!\w)(?P<label>{_LABELS}) (?P<roman>{ROMAN})(?!\.\w)")
_ROYAL = re.compile(rf"{_NAME}(?P<roman>{ROMAN})(?P<point>\.)?")
_ROMAN_ORDINAL = re.compile(rf"(?<!\w)(?P<roman>{ROMAN})\.(?= [A-ZÄÖÜ][a-zäöü])")
_ORDINALS = re.compile(
    r"(?<![\w.,])(?<!\d:)(?P<list>\d{1,3}\.(?:(?:, ?| ?- ?|/| und | oder | bis )\d{1,3}\.){0,5})"
    r"(?= [^\W\d_]|-[A-ZÄÖÜ]|$|,)"
)
_ORDINAL = re.compile(r"(\d{1,3})\.")
_DATE = re.compile(r"(?<![\w.,])(\d{1,2})\. ?(\d{1,2})\.(?: ?(\d{4}|\d\d)(?![\d.]\d|\d))?(?!\d)")
_SLASHED_DATE = re.compile(r"(?<![\w./-])(\d{1,2})([/-])(\d{1,2})\2(\d{4})(?![\w/-])")
_TIME_RANGE = re.compile(r"(?<=:\d\d)(?: Uhr)? ?- ?(?=\d{1,2}:\d\d)|(?<=\d\.\d\d)(?: Uhr)? ?- ?(?=\d{1,2}\.\d\d Uhr)")
# Von 8.30 bis 12 Uhr.
_FIRST_TIME = re.compile(
    r"(?<![\w:.,])([01]?\d|2[0-4])\.([0-5]\d)(?= (?:bis|und|oder) (?:[01]?\d|2[0-4])(?:\.[0-5]\d)? Uhr(?!\w))"
)
_TIME = re.compile(
    r"(?<![\w:.,])(?P<hour>[01]?\d|2[0-4])(?::(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?: Uhr| ?h(?!\w))?"
    r"|\.(?P<pointed>[0-5]\d) Uhr)(?![\w:])"
)
# Siegte mit 21:19, a score that could be a time.
_RESULT = re.compile(
    r"(?:(?<=mit )|(?<=gewann )|(?<=gewannen )|(?<=siegte )|(?<=siegten )|(?<=verlor )|(?<=unterlag )|(?<=endete )"
    r"|(?<=zum )|(?<=beim ))(\d{1,3}):(\d\d)(?!\d|:| Uhr| ?h(?!\w))"
)
_SPACED_SCORE = re.compile(r"(?<![\w.,:])(\d{1,3}) : (?=\d{1,3}(?:\.\d{3}){0,2}(?![\w:]|[.,]\d| ?=| ?Uhr))")
_DURATION = re.compile(
    r"(?<![\w:.,])(?:(\d{1,2}):)?(\d{1,2}):([0-5]\d)"
    r"(?:(,\d{1,3})(?![\w:])|(?= (?:Minuten|Min\.?|min|Stunden|Std\.?)(?!\w)))"
)
_STREET = re.compile(r"(?<=[a-zäöüß])str\.(?=$| \d| [A-Z])")
# 20,- and 20.- but not the first of 3.- und 5. Mai.
_WHOLE_EUROS = re.compile(r"(?<=\d)(?:,-{1,2}(?!\d)|\.-{1,2}(?= ?(?:€|EUR|CHF|[.,;:!?)]|$)))")
_PERCENT_JOINED = re.compile(r"(?<![\w.,])(\d{1,6}) ?%(?=ig)")
_POSTAL_CODE = re.compile(r"(?<=, )\d{5}(?= [A-ZÄÖÜ])")
# Also a 3er BMW, and a summit of the 8000er.
_DECADE = re.compile(r"(?<![\w.,])([1-9]\d{0,3})(ern?)(?!\w)")
# Of eine 1-Zimmer-Wohnung, but not of Formel-1-Rennen and Raum 1-Ost-Nord.
_ONE_OF_COMPOUND = re.compile(
    r"(?<!\w)((?:[Dd](?:ie|e[mnrs])|[Ee]ine?[mnrs]?|[a-zäöüß]{1,20}) |^)1(?=-[A-ZÄÖÜ][a-zäöüß]{1,20}-[A-ZÄÖÜ])"
)
_JOINED = re.compile(r"(?<![\w.,])(\d{1,6})(?:-(?=[a-zäöüß]{3})|(?=(?:mal|fach|jährig|köpfig|stellig)))")
_TIMES = re.compile(r"(?<![\w.,])(\d{1,6}) ?x(?!\w)")
_PHONE = re.compile(
    r"(?<![\w.,/+-])(?<!\d )(?:\+\d{1,3}(?: ?\(0\)(?: ?\d{1,5})?)?|0\d{1,5}|\(0\d{1,5}\))"
    r"(?:[ /-]\d{2,8}){1,5}(?![\w/-]|[.,:]\d)"
)
# Shorter ones are opening hours, or a month and its year.
_LEAST_PHONE_DIGITS = 7
# The S. of § 5 Abs. 1 S. 2 is no page.
_SENTENCE_OF_LAW = re.compile(r"(?:(?<=Abs\. \d)|(?<=Abs\. \d\d)) S\.(?= \d)")
_SO_CALLED = re.compile(r"(?<=\b[dD]e[mns] )sog\.(?= )")
_MONTHS = (
    "Januar", "Februar", "März", "April", "Mai", "Juni",
    "Juli", "August", "September", "Oktober", "November", "Dezember",
)  # fmt: skip
_JOINED_MONTH = re.compile(rf"(?<=\d\.)(?=(?:{'|'.join(_MONTHS)})\b)")
# Words that begin a sentence, and are no nouns.
_OPENERS = word_set(
    "Er Sie Es Ich Wir Ihr Du Man Der Die Das Ein Eine Sein Seine Ihre Mein Meine Dann Danach Dort Da Hier Und Aber "
    "Doch Auch Am Im In Nach Mit Heute Jetzt Seitdem"
)
_OR_MORE = re.compile(r" oder \d{1,4} [A-ZÄÖÜ]")
_FRAU = re.compile(r"(?<![\w.])Fr\.(?= [A-ZÄÖÜ][a-zäöüß]{2})")


_WORDS = Vocabulary(
    language="de",
    decimal_comma="Komma",
    decimal_point="Punkt",
    minus="minus",
    to="bis",
    versus="zu",
    slash="durch",
    per="pro",
    power="hoch",
    million=Noun("Million", "Millionen", FEMININE),
    money="{whole} {cents}",
    months=_MONTHS,
    digits=("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"),
    abbreviations={
        "z. B.": "zum Beispiel", "d. h.": "das heißt", "u. a.": "unter anderem", "u. U.": "unter Umständen",
        "i. d. R.": "in der Regel", "o. ä.": "oder ähnlich", "z. T.": "zum Teil", "s. o.": "siehe oben",
        "s. u.": "siehe unten", "m. E.": "meines Erachtens", "v. a.": "vor allem", "v. Chr.": "vor Christus",
        "n. Chr.": "nach Christus", "i. A.": "im Auftrag", "Dr.": "Doktor", "Prof.": "Professor", "Dipl.": "Diplom",
        "Ing.": "Ingenieur", "Hr.": "Herr", "Hrn.": "Herrn", "Frl.": "Fräulein", "St.": "Sankt", "Str.": "Straße",
        "usw.": "und so weiter", "usf.": "und so fort", "etc.": "et cetera", "bzw.": "beziehungsweise",
        "ca.": "circa", "vgl.": "vergleiche", "ggf.": "gegebenenfalls", "evtl.": "eventuell", "inkl.": "inklusive",
        "exkl.": "exklusive", "zzgl.": "zuzüglich", "sog.": "sogenannte", "geb.": "geboren", "gest.": "gestorben",
        "Jh.": "Jahrhundert", "Jhd.": "Jahrhundert", "Tel.": "Telefon", "max.": "maximal", "allg.": "allgemein",
        "bspw.": "beispielsweise", "insb.": "insbesondere", "mind.": "mindestens", "Abb.": "Abbildung",
        "Hbf.": "Hauptbahnhof", "Hbf": "Hauptbahnhof", "Jan.": "Januar", "Feb.": "Februar", "Aug.": "August",
        "Sept.": "September", "Okt.": "Oktober", "Nov.": "November", "Dez.": "Dezember",
        "MwSt.": "Mehrwertsteuer", "bzgl.": "bezüglich", "u. v. m.": "und vieles mehr",
        "u. s. w.": "und so weiter",
        "e. V.": "eingetragener Verein", "o. g.": "oben genannt",
        "o. Ä.": "oder Ähnliches", "u. Ä.": "und Ähnliches", "08/15": "nullachtfünfzehn",
    },
    number_abbreviations={
        "Nr.": "Nummer", "S.": "Seite", "Art.": "Artikel", "Abs.": "Absatz", "Bd.": "Band", "Kap.": "Kapitel",
        "Ziff.": "Ziffer",
    },
    abbreviations_in_context={"Jan.": r"(?<=\d\. )Jan\.|Jan\.(?= ?\d)", "max.": r"max\.(?= ?\d)"},
    ending_abbreviations=frozenset(["usw.", "usf.", "etc.", "u.v.m.", "u.s.w.", "e.V."]),
    signs={
        "&": "und", "+": "plus", "=": "gleich", "%": "Prozent", "‰": "Promille", "@": "at", "§": "Paragraf",
        "€": "Euro", "$": "Dollar", "£": "Pfund", "°": "Grad", "×": "mal", "÷": "geteilt durch", "²": "Quadrat",
        "³": "hoch drei", "#": "Hashtag", "±": "plus minus", "<": "kleiner als", ">": "größer als",
    },
    address_signs={
        ".": "Punkt", "/": "Schrägstrich", "-": "Bindestrich", "_": "Unterstrich", "@": "at", ":": "Doppelpunkt",
        "~": "Tilde", "?": "Fragezeichen", "=": "gleich", "&": "und", "#": "Raute", "+": "plus", "%": "Prozent",
    },
    address_endings="de|at|ch",
    number_signs={"#": "Nummer", "№": "Nummer", "§§": "Paragrafen"},
    scales={
        "Mio.": Noun("Million", "Millionen", FEMININE), "Mio": Noun("Million", "Millionen", FEMININE),
        "Million": Noun("Million", "Millionen", FEMININE), "Millionen": Noun("Million", "Millionen", FEMININE),
        "Mrd.": Noun("Milliarde", "Milliarden", FEMININE), "Mrd": Noun("Milliarde", "Milliarden", FEMININE),
        "Milliarde": Noun("Milliarde", "Milliarden", FEMININE),
        "Milliarden": Noun("Milliarde", "Milliarden", FEMININE), "Tsd.": Noun("tausend", "tausend", NEUTER),
    },
    units={
        "Uhr": Noun("Uhr", "Uhr"), "%": Noun("Prozent", "Prozent", NEUTER), "‰": Noun("Promille", "Promille"),
        "km/h": Noun("Kilometer pro Stunde", "Kilometer pro Stunde"),
        "m/s": Noun("Meter pro Sekunde", "Meter pro Sekunde"),
        "mm²": Noun("Quadratmillimeter", "Quadratmillimeter"), "km³": Noun("Kubikkilometer", "Kubikkilometer"),
        "m/s²": Noun("Meter pro Quadratsekunde", "Meter pro Quadratsekunde"),
        "km": Noun("Kilometer", "Kilometer"), "m": Noun("Meter", "Meter"), "cm": Noun("Zentimeter", "Zentimeter"),
        "mm": Noun("Millimeter", "Millimeter"), "km²": Noun("Quadratkilometer", "Quadratkilometer"),
        "m²": Noun("Quadratmeter", "Quadratmeter"), "qm": Noun("Quadratmeter", "Quadratmeter"),
        "cm²": Noun("Quadratzentimeter", "Quadratzentimeter"), "m³": Noun("Kubikmeter", "Kubikmeter"),
        "cm³": Noun("Kubikzentimeter", "Kubikzentimeter"), "ha": Noun("Hektar", "Hektar"),
        "kg": Noun("Kilogramm", "Kilogramm", NEUTER), "g": Noun("Gramm", "Gramm", NEUTER),
        "mg": Noun("Milligramm", "Milligramm", NEUTER), "t": Noun("Tonne", "Tonnen", FEMININE),
        "EL": Noun("Esslöffel", "Esslöffel"), "TL": Noun("Teelöffel", "Teelöffel"),
        "l": Noun("Liter", "Liter"), "ml": Noun("Milliliter", "Milliliter"), "°C": Noun("Grad Celsius", "Grad Celsius"),
        "° C": Noun("Grad Celsius", "Grad Celsius"), "°F": Noun("Grad Fahrenheit", "Grad Fahrenheit"),
        "°": Noun("Grad", "Grad"), "h": Noun("Stunde", "Stunden", FEMININE),
        "Std.": Noun("Stunde", "Stunden", FEMININE), "min": Noun("Minute", "Minuten", FEMININE),
        "Min.": Noun("Minute", "Minuten", FEMININE), "s": Noun("Sekunde", "Sekunden", FEMININE),
        "Sek.": Noun("Sekunde", "Sekunden", FEMININE), "kWh": Noun("Kilowattstunde", "Kilowattstunden", FEMININE),
        "kW": Noun("Kilowatt", "Kilowatt", NEUTER), "MW": Noun("Megawatt", "Megawatt", NEUTER),
        "W": Noun("Watt", "Watt", NEUTER), "V": Noun("Volt", "Volt", NEUTER), "Hz": Noun("Hertz", "Hertz", NEUTER),
        "kHz": Noun("Kilohertz", "Kilohertz", NEUTER), "MHz": Noun("Megahertz", "Megahertz", NEUTER),
        "GHz": Noun("Gigahertz", "Gigahertz", NEUTER), "MB": Noun("Megabyte", "Megabyte", NEUTER),
        "GB": Noun("Gigabyte", "Gigabyte", NEUTER), "TB": Noun("Terabyte", "Terabyte", NEUTER),
        "dB": Noun("Dezibel", "Dezibel", NEUTER), "PS": Noun("PS", "PS", NEUTER),
    },
    currencies={
        **dict.fromkeys(["€", "EUR", "Euro"], Noun("Euro", "Euro")),
        **dict.fromkeys(["$", "USD", "US$", "US-$"], Noun("Dollar", "Dollar")),
        "£": Noun("Pfund", "Pfund", NEUTER), "¥": Noun("Yen", "Yen"),
        "CHF": Noun("Franken", "Franken"), "ct": Noun("Cent", "Cent"),
    },
    cents={
        **dict.fromkeys(["€", "EUR", "Euro", "$", "USD", "US$", "US-$"], Noun("Cent", "Cent")),
        "£": Noun("Penny", "Pence"), "CHF": Noun("Rappen", "Rappen"),
    },
    half="ein halb",
    fractions={
        3: Noun("Drittel", "Drittel", NEUTER), 4: Noun("Viertel", "Viertel", NEUTER),
        5: Noun("Fünftel", "Fünftel", NEUTER), 8: Noun("Achtel", "Achtel", NEUTER),
        10: Noun("Zehntel", "Zehntel", NEUTER),
    },
)  # fmt: skip


class German(Reading):
    """German: `eintausend` in counts, `neunzehnhundert` in years, ordinals that end as their article wants."""

    words = _WORDS

    @property
    def rules(self) -> Iterable[Rule]:
        """Return the rules of dates, times, ordinals and telephone numbers."""
        return (
            (_SLASHED_DATE, lambda match: self.read_date(match, match[1], match[3], match[4])),
            (_PHONE, self._phone),
            (_POSTAL_CODE, self.groups),
            (_WHOLE_EUROS, ""),
            *self.rules_before_times,
            (_SPACED_SCORE, rf"\1 {self.words.versus} "),
            (_RESULT, rf"\1 {self.words.versus} \2"),
            (_DURATION, lambda match: " ".join(filter(None, match.groups()[:3])) + (match[4] or "")),
            (_TIME_RANGE, " Uhr bis "),
            (_FIRST_TIME, r"\1:\2"),
            (_TIME, self._time),
            (_DATE, lambda match: self.read_date(match, match[1], match[2], match[3])),
            (_ORDINALS, self._ordinals),
            (_DECADE, lambda match: f"{self.year(match[1])}{match[2]}"),
            (_ONE_OF_COMPOUND, r"\1ein"),
            (_JOINED, lambda match: self.cardinal(int(match[1]), "cardinal-neuter")),
            (_PERCENT_JOINED, lambda match: f"{self.cardinal(int(match[1]), 'cardinal-neuter')}prozent"),
            (_TIMES, lambda match: f"{self.cardinal(int(match[1]), 'cardinal-neuter')}mal"),
            (SCORE, rf"\1 {self.words.versus} \2"),
        )

    def expand_roman(self, text: str) -> str:
        """Return the text with the numerals of rulers in words, and those of chapters and centuries in digits."""
        text = _LABELLED_ROMAN.sub(lambda match: f"{match['label']} {roman_value(match['roman'])}", text)
        text = _ROYAL.sub(self._royal, text)
        return _ROMAN_ORDINAL.sub(self._roman_ordinal, text)

    def expand(self, text: str) -> str:
        """Return the text without figures, abbreviations and signs."""
        text = _JOINED_MONTH.sub(" ", _SO_CALLED.sub("sogenannten", text))
        return super().expand(_SENTENCE_OF_LAW.sub(" Satz", _FRAU.sub("Frau", _STREET.sub("straße", text))))

    def decimals(self, figure: str) -> str:
        """Return the digits after the comma one by one: `vierzehn Komma zwei fünf`."""
        return self.digit_by_digit(figure)

    def date(self, day: int, month: int, year: str | None) -> str:
        """Return `21. März neunzehnhundertneunzig`; the rule of ordinals reads the day by the word before."""
        return " ".join([f"{day}. {self.words.months[month - 1]}", *([self.year(year)] if year else [])])

    def year(self, figure: str) -> str:
        """Return a year in hundreds up to 1999."""
        return self.cardinal(int(figure), "numbering-year") if figure[0] != "0" else self.digit_by_digit(figure)

    def half_of(self, whole: str | None, noun: Noun) -> str:
        """Return `eine halbe Stunde` or `zweieinhalb Stunden`; a masculine half in the accusative, the usual case."""
        if whole:
            return f"{self.and_a_half(int(whole))} {noun.many}"
        articles = {FEMININE: "eine halbe", NEUTER: "ein halbes", MASCULINE: "einen halben"}
        return f"{articles[noun.gender]} {noun.one}"

    def and_a_half(self, whole: int) -> str:
        """Return `eineinhalb`."""
        return f"{self.cardinal(whole, 'cardinal-neuter')}einhalb"

    def noun(self, word: str) -> Noun | None:
        """Return a capitalised word whose gender is known."""
        gender = (_gender(word) or _gender(word.removesuffix("n"))) if word[0].isupper() else ""
        return Noun(word, word, gender) if gender else None

    def form(self, counted: Counted) -> str:
        """Return the form of years for a number that stands like one, and for a one its noun's gender and case."""
        number, before, after = counted.number, counted.before, counted.word_after
        is_noun = after[:1].isupper()
        if counted.noun is None and 1100 <= number <= 1999 and len(counted.match["low"]) == 4:
            is_year = counted.match["high"] is not None or not is_noun or bool(before and before[0] in _YEAR_CUES)
            return "numbering-year" if is_year else "numbering"
        previous = words_before(counted.match, 2)
        # Kapitel 1 Seite 3: a number after a noun is its name. A sentence's first word is often no noun.
        is_name = counted.noun is None and bool(previous) and previous[0][0].isupper() and previous[0][-1].isalnum()
        is_name = is_name and (len(previous) == 2 or previous[0] in _LABELS.split("|"))
        low, high = counted.match["low"], counted.match["high"]
        # Ein bis zwei Tage, ein oder zwei Tage.
        is_either = _OR_MORE.match(counted.match.string, counted.match.end()) is not None
        is_range = low == "1" and (is_either or high not in (None, "0", "1"))
        # Of 3-1 Sieg and 3:1 Sieg.
        is_score = high is not None or (before[:1] == ["zu"] and before[-1].isdecimal())
        is_score = is_score and counted.noun is None and not is_range
        if number != 1 or is_name or is_score or not (is_noun or is_either or counted.noun):
            return "numbering"
        gender = counted.noun.gender if counted.noun else _gender(after) or _guessed_gender(after)
        is_time = counted.noun is not None and counted.noun.one == "Uhr"
        # Über eine Million, auf über eine Million; but seit über einer Million.
        is_scale = counted.noun in self.words.scales.values() and not set(before) & (_DATIVE - {"über", "auf"})
        if is_range:
            gender = NEUTER
        elif before and before[0] in _DATIVE and not is_time and not is_scale:
            return "cardinal-r" if gender == FEMININE else "cardinal-m"
        if before and before[0] in _ACCUSATIVE | _TRANSITIVE and gender == MASCULINE and not is_time:
            return "cardinal-n"
        return f"cardinal-{gender or NEUTER}"

    def _royal(self, match: re.Match[str]) -> str:
        """Return `Ludwig der Vierzehnte`, in the case that the words before ask for."""
        name, number = match["name"], roman_value(match["roman"])
        is_ruler = name in _RULERS or name.removesuffix("s") in _RULERS
        is_letter = len(match["roman"]) == 1
        is_word = name in _NOUN_GENDERS or name.lower() in _ENDING_N | _ENDING_E | _THE
        # Without its point, only a long numeral after a ruler's name is certain: Ludwig XIV regierte.
        is_certain = is_ruler or not (is_letter or is_word) if match["point"] else is_ruler and not is_letter
        # Rocky II. Er war gut. The size XL is no numeral.
        if not is_certain or match["roman"] == "XL" or (word_after(match) in _OPENERS and not is_ruler):
            return match[0]
        before = [word.lower() for word in words_before(match, 2)]
        ordinal = spell(number, "de", "ordinal")
        is_queen = name in _QUEENS
        if name.endswith("s") and name not in _RULERS and name[:-1] in _RULERS:
            words = f"{'der' if name[:-1] in _QUEENS else 'des'} {ordinal}n"
        elif set(before) & (_DATIVE | {"dem", "beim", "vom", "zum"}):
            words = f"{'der' if is_queen else 'dem'} {ordinal}n"
        elif set(before) & (_ACCUSATIVE | {"den"}):
            words = f"die {ordinal}" if is_queen else f"den {ordinal}n"
        elif set(before) & {"des"}:
            words = f"des {ordinal}n"
        else:
            words = f"{'die' if is_queen else 'der'} {ordinal}"
        return f"{name} {words}{_full_stop(match) if match['point'] else ''}"

    def _roman_ordinal(self, match: re.Match[str]) -> str:
        """Return `1.` for `I.`; one letter without an article or a known noun is an initial: `I. Kant`."""
        last = " ".join(words_before(match, 1)).lower()
        is_asked_for = last in _ENDING_N | _ENDING_E | _THE or _gender(word_after(match)) != ""
        is_numeral = is_asked_for or (len(match["roman"]) > 1 and match["roman"] != "XL")
        return f"{roman_value(match['roman'])}." if is_numeral else match[0]

    def _phone(self, match: re.Match[str]) -> str:
        is_long = "+" in match[0] or sum(map(str.isdecimal, match[0])) >= _LEAST_PHONE_DIGITS
        return self.groups(match) if is_long else match[0]

    def _ordinals(self, match: re.Match[str]) -> str:
        """Return the ordinals of a list such as `1., 2. und 3.` with one ending; a number at a sentence's end stays."""
        before, noun = words_before(match, 3), word_after(match)
        last = before[0].lower() if before else ""
        is_known = _gender(noun) != ""
        if noun in _OPENERS and last in ("bis", "ab", "seit"):  # Er blieb bis 8. Dann ging er.
            return match[0]
        is_asked_for = last in _ENDING_N | _THE or (last in _MIXED | _ENDING_E and noun != "")
        if not (is_known or is_asked_for or "." in match["list"][:-1]):
            return match[0]
        ending = _ordinal_ending(before, noun)
        said = _ORDINAL.sub(lambda one: spell(int(one[1]), "de", f"ordinal{ending}"), match["list"])
        return re.sub(" ?- ?", " bis ", said).replace("/", " ") + _full_stop(match)

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = int(match["hour"]), int(match["minute"] or match["pointed"])
        said = f"{self.cardinal(hour, 'cardinal-masculine')} Uhr"
        if minute:
            said += f" {self.cardinal(minute)}"
        if match["second"]:
            seconds = int(match["second"])
            said += f" und {self.cardinal(seconds, 'cardinal-feminine')} {'Sekunde' if seconds == 1 else 'Sekunden'}"
        return set_apart(said, match)


def _full_stop(match: re.Match[str]) -> str:
    """Return the point of a number that ends a sentence too, or nothing."""
    return "." if match.end() == len(match.string) or word_after(match) in _OPENERS else ""


def _ordinal_ending(before: list[str], noun: str) -> str:
    """Return the ruleset's ending of an ordinal by the words before it, the nearest first, and the noun after it."""
    lower = [word.lower() for word in before]
    if lower and lower[0].rstrip(",") in _WEEKDAYS:
        return "-n" if lower[1:2] and lower[1] in _ENDING_N else "-r"
    last = lower[0].strip("(\"'") if lower else ""
    if last in _ENDING_N:
        return "-n"
    if last == "der":
        is_genitive = len(before) > 2 and before[1][0].isupper() and before[1][-1].isalpha()
        return "-n" if lower[1:2] and (lower[1] in _DATIVE or is_genitive) else ""
    if last in _ENDING_E:
        return ""
    gender = _gender(noun)
    if last in _DATIVE:
        return "-r" if gender == FEMININE else "-m"
    return {FEMININE: "", NEUTER: "-s"}.get(gender, "-r")


def _gender(noun: str) -> str:
    """Return the gender of a noun, or an empty string if it is not known."""
    if noun in _NOUN_GENDERS:
        return _NOUN_GENDERS[noun]
    if noun.endswith(_FEMININE_ENDINGS):
        return FEMININE
    # The last part of a compound gives its gender.
    known = (gender for word, gender in _NOUN_GENDERS.items() if len(word) > 3 and noun.endswith(word.lower()))
    return next(known, "")


def _guessed_gender(noun: str) -> str:
    """Return feminine for nouns that end as most feminine ones do, or an empty string."""
    is_feminine = noun.lower().endswith(("e", "zwiebel", "kartoffel")) and noun not in _NOT_FEMININE
    return FEMININE if is_feminine else ""
