"""Read Spanish figures, signs and abbreviations aloud."""

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
    word_after,
    word_set,
    words_before,
)
from xtts_pipeline.text.numbers import set_apart

_NOT_NOUNS = word_set(
    "a al ante bajo con contra de del desde e el ella en entre es está están eran era fue ha han hasta hay la las lo "
    "los me más menos mientras ni no o para pero por porque que se según si sin sobre son su sus también tras u un una "
    "y ya durante"
)
_MASCULINE_IN_A = word_set(
    "día mapa problema programa sistema tema idioma planeta poeta clima drama poema síntoma gramo kilograma "
    "telegrama atleta futbolista artista turista deportista periodista guardia policía"
)
_FEMININE_NOUNS = word_set(
    "noche mujer mano calle clase tarde parte madre llave nave nube fase frase torre vez foto moto flor luz imagen "
    "imágen voz cruz raíz señal red pared sede base serie especie fuente muerte cumbre"
)
# Feminine, but un agua.
_FEMININE_WITH_UN = word_set("agua águila alma área arma aula ala hacha acta arpa ancla hada")
_FEMININE_ENDINGS = ("a", "ción", "sión", "cion", "sion", "dad", "tad", "tud")
_QUEENS = word_set(
    "Isabel Elizabeth Juana María Cristina Catalina Ana Sofía Urraca Margarita Victoria Blanca Leonor Beatriz "
    "Guillermina Carlota Cleopatra Petronila"
)
# A numeral after another name is a cardinal: Rocky IV, Zona II.
_RULERS = _QUEENS | word_set(
    "Carlos Felipe Alfonso Fernando Juan Pedro Enrique Sancho Ramiro Ordoño Bermudo García Luis José Francisco Jaime "
    "Martín Berenguer Abderramán Alhakén Amadeo Recaredo Teobaldo Íñigo Mohamed Hassan Abdalá Solimán Mehmed Murad "
    "Selim Pío Pablo León Benedicto Gregorio Clemente Inocencio Urbano Alejandro Sixto Julio Adriano Bonifacio "
    "Celestino Honorio Calixto Eugenio Esteban Silvestre Nicolás Víctor Manuel Humberto Eduardo Jorge Jacobo "
    "Guillermo Ricardo Roberto Napoleón Hugo Carlomán Otón Conrado Rodolfo Segismundo Maximiliano Leopoldo Federico "
    "Alberto Balduino Rainiero Augusto Ladislao Casimiro Boleslao Miguel Boris Simeón Iván Constantino Teodosio "
    "Justiniano Gustavo Cristián Christian Haakon Harald Olaf Erico Darío Jerjes Artajerjes Ciro Nabucodonosor Ramsés "
    "Seti Tutmosis Amenhotep Amenofis Ptolomeo Tolomeo Filipo Antíoco Seleuco Mitrídates Herodes Sebastián Menelik "
    "Moctezuma Agustín Dagoberto Fruela Alarico Clodoveo Canuto Teodorico Marcelo Sergio Estanislao Wenceslao Lotario "
    "Tiberio Hasán Faruk Pipino Gelasio Lucio Nicéforo Basilio Valentiniano Pascual Anastasio Dámaso"
)
_NAME = r"(?<!\w)([A-ZÁÉÍÓÚÑ][a-záéíóúüñ]{2,20})"
_CENTURY = re.compile(rf"(?<!\w)([Ss]iglos?|ss?\.) ?((?:{ROMAN})(?:(?:, | ?- ?| y | al | a )(?:{ROMAN})){{0,5}})")
_LABELS = (
    "[Cc]apítulo|[Tt]omo|[Aa]cto|[Ll]ibro|[Ee]scena|[Vv]olumen|[Tt]ítulo|[Aa]rtículo|[Ff]ase|[Tt]ipo|[Aa]nexo|[Pp]arte"
)
_THOUSANDS_OF = re.compile(r" mil ([^\W\d_]{1,30})")
_LABELLED_ROMAN = re.compile(rf"(?<!\w)({_LABELS}) ({ROMAN})(?!')")
_ROYAL = re.compile(rf"{_NAME} ({ROMAN})")
# Of the letter of a name cut short: Carlos V. fue detenido; and the sizes L and XL are no numerals either.
_CUT_SHORT = re.compile(r"\.(?:,| [a-záéíóúñ])")
_FIFTH_OR_TENTH = frozenset(["Carlos", "Alfonso", "Felipe", "Enrique", "Pío"])
_RULING = re.compile(
    r"(?<!\w)(?:el|del|al|la) (?:rey|papa|emperador|zar|sultán|príncipe|duque|conde"
    r"|(?P<feminine>reina|emperatriz|zarina|princesa|duquesa|condesa)) $",
    re.IGNORECASE,
)
_LONGEST_RULING = 20
_RULED = re.compile(r" (?:reinó|abdicó)(?!\w)")
# Tema I. Introducción.
_SECTIONS = word_set("apartado bloque categoría grupo lección módulo nivel parque sección tema unidad zona")
# Programa I+D, Marta I. Gil.
_AFTER_INITIAL = re.compile(r"\+| {1,2}más D(?!\w)|\. [A-ZÁÉÍÓÚÑ]")
_ROMAN_ORDINAL = re.compile(
    rf"(?<!\w)((?:[Ll]a|[Ee]l|[Dd]el|[Aa]l) )?({ROMAN})"
    r"(?= (?:[A-ZÁÉÍÓÚÑ][a-záéíóúüñ]|(?:edición|aniversario|congreso|centenario|legislatura|dinastía|feria|festival"
    r"|certamen|torneo|cumbre)(?!\w)))"
)
_ORDINAL = re.compile(
    r"(?<![\w.,])(\d{1,4})\.?(?:((?:[ºo°]|ro|do|to|vo|mo|no)(?!\w| ?C(?!\w)))"
    r"|(ª|(?:e?r|d|t|v|m|n)?a(?!\w))|((?:er|r)(?!\w)))(\s?s(?!\w))?"
)
_LETTER_AFTER = re.compile(r" (?:[A-Z]|ESO)(?!\w|\.\w)")
_MONTHS = (
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
)
_SHORT_DATE = re.compile(r"(?:(?<=[Ee]l )|(?<=[Dd]el )|(?<=[Aa]l ))(\d{1,2})/(\d{1,2})(?![\w/]|[.,]\d)")
_HALF_OF_DAY = r"(?: ?([ap](?=\. ?m)|[AP](?=\.M))\. ?[mM]\.?| ?([ap](?=m)|[AP](?=M))[mM])"
_TIME_RANGE = re.compile(r"(?<=:\d\d) ?- ?(?=\d{1,2}:\d\d)")
_TIME = re.compile(
    rf"(?<![\w:.,])([01]?\d|2[0-4])(?:[:.]([0-5]\d)(?: ?(h|hs|hrs|horas)(?!\w))|:([0-5]\d)(?!:))"
    rf"(?:{_HALF_OF_DAY}(?!\w))?(?![\w:])"
)
_POINTED_TIME = re.compile(
    r"(?:(?<=[Ll]as )|(?<=[Ll]a ))(1?\d|2[0-3])\.([0-5]\d)(?![\w%]|[.,]\d| ?(?:h|hs|hrs|horas)(?!\w))"
)
_HOUR = re.compile(rf"(?<![\w:.,])(1[0-2]|0?[1-9]){_HALF_OF_DAY}(?!\w)")
# `ha` is also a verb: ha llegado, en 2030 ha de llegar.
_HECTARES = re.compile(r"(?<=\d)(?<!\b[eE]n [12]\d{3}) ?ha(?= de |[.,;:!?)]|$)")
_ONE_HECTARE = re.compile(r"(?<=1)(?<![\d.,]1) ?ha(?= de |[.,;:!?)]|$)")
_SECOND = re.compile(r" (?:mil )?([oy]) \d[\d.]{0,14} (?:mil )?([^\W\d_]{1,30}s)(?!\w)")
_PARTS = re.compile(r"(?<![\w/.,:-])(?<!\d )(\d)/([3-9]|10)(?= partes?(?!\w))")
_DON = re.compile(r"(?<![\w.])(?<![A-ZÁÉÍÓÚ]\. )D\.(?= [A-ZÁÉÍÓÚ][a-záéíóúñ]{2})")
_PLURAL = re.compile(r"(?<=[ao])s$|(?<=s)es$")
_AND_I = re.compile(r" ?& ?(?=[Hh]?[IiÍí])")
_PHONE = re.compile(
    r"(?<![\w.,/-])(?<!\d )(?:\+\d{1,3}(?: \d{2,4}){2,5}|[6-9]\d\d \d\d \d\d \d\d|[89]\d \d{3} \d\d \d\d"
    r"|0\d{1,3}(?:[ -]\d{2,4}){2,4})"
    r"(?![\w-]|[.,]\d)"
)
_EUROS_CENTS = re.compile(r"(?<=\d)'(?=\d\d ?(?:€|euros))")
_CALLED_PHONE = re.compile(
    r"(?:(?<=teléfono )|(?<=Teléfono )|(?<=móvil )|(?<=llame al )|(?<=Llame al )|(?<=número ))\d{3} \d{3} \d{3}(?!\d)"
)


_WORDS = Vocabulary(
    language="es",
    decimal_comma="coma",
    decimal_point="punto",
    minus="menos",
    to="a",
    versus="a",
    slash="sobre",
    per="por",
    power="elevado a",
    million=Noun("millón", "millones"),
    money="{whole} con {cents} {cent}",
    of={"": " de "},
    months=_MONTHS,
    digits=("cero", "uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve"),
    abbreviations={
        "Sr.": "señor", "Sra.": "señora", "Srta.": "señorita", "Sres.": "señores", "Sras.": "señoras",
        "Dr.": "doctor", "Dra.": "doctora", "D.ª": "doña", "Dña.": "doña", "Ud.": "usted", "Uds.": "ustedes",
        "Vd.": "usted", "Vds.": "ustedes", "EE. UU.": "Estados Unidos", "EEUU": "Estados Unidos",
        "JJ. OO.": "Juegos Olímpicos", "etc.": "etcétera", "p. ej.": "por ejemplo", "a. C.": "antes de Cristo",
        "d. C.": "después de Cristo", "tel.": "teléfono", "Tel.": "teléfono", "tfno.": "teléfono", "avda.": "avenida",
        "Avda.": "avenida", "av.": "avenida", "Av.": "avenida", "pl.": "plaza", "Pza.": "plaza",
        "Ntra.": "nuestra", "Prof.": "profesor",
        "Profa.": "profesora", "Gral.": "general", "aprox.": "aproximadamente", "máx.": "máximo", "mín.": "mínimo",
        "Sto.": "santo", "Sta.": "santa", "vs.": "contra", "izda.": "izquierda", "dcha.": "derecha",
        "c/u": "cada uno", "c/": "calle ", "C/": "calle ", "Cía.": "compañía",
        "Ing.": "ingeniero", "Lic.": "licenciado",
    },
    number_abbreviations={
        "núm.": "número", "n.º": "número", "nº": "número", "nro.": "número",
        "n.°": "número", "n°": "número", "pág.": "página", "págs.": "páginas", "p.": "página", "pp.": "páginas",
        "cap.": "capítulo", "art.": "artículo", "vol.": "volumen", "fig.": "figura",
    },
    ending_abbreviations=frozenset(["etc."]),
    signs={
        "&": "y", "+": "más", "=": "igual a", "%": "por ciento", "‰": "por mil", "@": "arroba", "§": "sección",
        "€": "euros", "$": "dólares", "£": "libras", "°": "grados", "×": "por", "÷": "entre", "²": "al cuadrado",
        "³": "al cubo", "#": "almohadilla", "±": "más menos", "<": "menor que", ">": "mayor que",
    },
    address_signs={
        ".": "punto", "/": "barra", "-": "guion", "_": "guion bajo", "@": "arroba", ":": "dos puntos",
        "~": "virgulilla", "?": "signo de interrogación", "=": "igual", "&": "y", "#": "almohadilla", "+": "más",
        "%": "por ciento",
    },
    address_endings="es|mx|ar|cl|co",
    number_signs={"#": "número", "№": "número", "§§": "secciones"},
    scales={
        "millón": Noun("millón", "millones"), "millones": Noun("millón", "millones"),
        "mill.": Noun("millón", "millones"), "M": Noun("millón", "millones"),
        "billón": Noun("billón", "billones"), "billones": Noun("billón", "billones"),
    },
    units={
        "%": Noun("por ciento", "por ciento"), "‰": Noun("por mil", "por mil"),
        "km/h": Noun("kilómetro por hora", "kilómetros por hora"),
        "mm²": Noun("milímetro cuadrado", "milímetros cuadrados"),
        "km³": Noun("kilómetro cúbico", "kilómetros cúbicos"),
        "m/s²": Noun("metro por segundo al cuadrado", "metros por segundo al cuadrado"),
        "m/s": Noun("metro por segundo", "metros por segundo"), "km": Noun("kilómetro", "kilómetros"),
        "m": Noun("metro", "metros"), "cm": Noun("centímetro", "centímetros"), "mm": Noun("milímetro", "milímetros"),
        "km²": Noun("kilómetro cuadrado", "kilómetros cuadrados"), "m²": Noun("metro cuadrado", "metros cuadrados"),
        "cm²": Noun("centímetro cuadrado", "centímetros cuadrados"), "m³": Noun("metro cúbico", "metros cúbicos"),
        "cm³": Noun("centímetro cúbico", "centímetros cúbicos"),
        "kg": Noun("kilogramo", "kilogramos"), "g": Noun("gramo", "gramos"), "mg": Noun("miligramo", "miligramos"),
        "t": Noun("tonelada", "toneladas", FEMININE), "l": Noun("litro", "litros"), "L": Noun("litro", "litros"),
        "ml": Noun("mililitro", "mililitros"), "°C": Noun("grado Celsius", "grados Celsius"),
        "ºC": Noun("grado Celsius", "grados Celsius"), "° C": Noun("grado Celsius", "grados Celsius"),
        "º C": Noun("grado Celsius", "grados Celsius"), "°F": Noun("grado Fahrenheit", "grados Fahrenheit"),
        "°": Noun("grado", "grados"), **dict.fromkeys(["h", "hs", "hrs"], Noun("hora", "horas", FEMININE)),
        "min": Noun("minuto", "minutos"),
        **dict.fromkeys(["s", "seg", "seg."], Noun("segundo", "segundos")),
        "kWh": Noun("kilovatio hora", "kilovatios hora"),
        "kW": Noun("kilovatio", "kilovatios"), "MW": Noun("megavatio", "megavatios"), "W": Noun("vatio", "vatios"),
        "V": Noun("voltio", "voltios"), "Hz": Noun("hercio", "hercios"), "kHz": Noun("kilohercio", "kilohercios"),
        "MHz": Noun("megahercio", "megahercios"), "GHz": Noun("gigahercio", "gigahercios"),
        "MB": Noun("megabyte", "megabytes"), "GB": Noun("gigabyte", "gigabytes"), "TB": Noun("terabyte", "terabytes"),
        "dB": Noun("decibelio", "decibelios"),
    },
    currencies={
        "€": Noun("euro", "euros"), "EUR": Noun("euro", "euros"), "euros": Noun("euro", "euros"),
        "$": Noun("dólar", "dólares"), "USD": Noun("dólar", "dólares"), "US$": Noun("dólar", "dólares"),
        "£": Noun("libra", "libras", FEMININE), "¥": Noun("yen", "yenes"), "CHF": Noun("franco", "francos"),
    },
    cents={
        **dict.fromkeys(["€", "EUR", "euros"], Noun("céntimo", "céntimos")),
        **dict.fromkeys(["$", "USD", "US$"], Noun("centavo", "centavos")), "£": Noun("penique", "peniques"),
    },
    half="un medio",
    fractions={
        3: Noun("tercio", "tercios"), 4: Noun("cuarto", "cuartos"),
        5: Noun("quinto", "quintos"), 8: Noun("octavo", "octavos"),
    },
)  # fmt: skip


class Spanish(Reading):
    """Spanish: numbers agree with the noun after them; ordinals up to the tenth for rulers and centuries."""

    words = _WORDS

    @property
    def rules(self) -> Iterable[Rule]:
        """Return the rules of dates, times, ordinals and telephone numbers."""
        return (
            (DATE, lambda match: self.read_date(match, match[1], match[3], match[4])),
            (_SHORT_DATE, lambda match: self.read_date(match, match[1], match[2], None)),
            (_PHONE, self.groups),
            (_CALLED_PHONE, self.groups),
            *self.rules_before_times,
            (_TIME_RANGE, f" {self.words.to} "),
            (_POINTED_TIME, r"\1:\2"),
            (TIME_OF_SECONDS, self._time_of_seconds),
            (_TIME, self._time),
            (_HOUR, self._hour),
            (SCORE, rf"\1 {self.words.versus} \2"),
            (_EUROS_CENTS, ","),
            (_ORDINAL, self._ordinal),
            (_PARTS, self._parts),
        )

    def cardinal(self, number: int, form: str = "numbering") -> str:
        """Return a number in words: `doscientas mil` agrees, but not `veintiún mil` and `doscientos millones`."""
        millions, below = divmod(number, 1_000_000)
        thousands, rest = divmod(below, 1000)
        if form != "cardinal-feminine" or thousands < 200:
            return super().cardinal(number, form)
        said = [super().cardinal(millions * 1_000_000)] if millions else []
        said += [super().cardinal(thousands, form), "mil"]
        return " ".join([*said, super().cardinal(rest, form)] if rest else said)

    def expand_roman(self, text: str) -> str:
        """Return the text with the numerals of rulers, chapters and centuries in words or digits."""
        text = _CENTURY.sub(self._century, text)
        text = _LABELLED_ROMAN.sub(lambda match: f"{match[1]} {roman_value(match[2])}", text)
        text = _ROYAL.sub(self._royal, text)
        return _ROMAN_ORDINAL.sub(self._roman_ordinal, text)

    def date(self, day: int, month: int, year: str | None) -> str:
        """Return `catorce de julio de mil setecientos ochenta y nueve`."""
        said = [self.cardinal(day), self.words.months[month - 1]]
        return " de ".join([*said, self.year(year)] if year else said)

    def half_of(self, whole: str | None, noun: Noun) -> str:
        """Return `media hora` or `dos horas y media`."""
        half = "media" if noun.gender == FEMININE else "medio"
        if whole:
            number = self.cardinal(int(whole), f"cardinal-{noun.gender}")
            # A word of the text has one form: 1 1/2 horas.
            return f"{number} {_PLURAL.sub('', noun.one) if int(whole) == 1 else noun.many} y {half}"
        return f"{half} {noun.one}"

    def and_a_half(self, whole: int) -> str:
        """Return `dos y medio`."""
        return f"{self.cardinal(whole)} y medio"

    def noun(self, word: str) -> Noun | None:
        """Return any word that is no function word."""
        return None if word.lower() in _NOT_NOUNS else Noun(word, word, _gender(word.lower()))

    def expand(self, text: str) -> str:
        """Return the text without figures, abbreviations and signs."""
        text = _HECTARES.sub(" hectáreas", _ONE_HECTARE.sub(" hectárea", text))
        return super().expand(_AND_I.sub(" e ", _DON.sub("don", text)))

    def form(self, counted: Counted) -> str:
        """Return the form that agrees with the unit or noun after the number, or with the article before it."""
        number, after = counted.number, counted.word_after
        noun = "" if after[:1].isupper() else after  # 3-1 Barcelona
        if counted.noun is not None:
            # A percentage keeps `uno`.
            return "numbering" if counted.noun.one.startswith("por ") else f"cardinal-{counted.noun.gender}"
        article = counted.before[0] if counted.before else ""
        if _is_first_of_feminine(counted):
            return "cardinal-feminine"
        if not noun or noun in _NOT_NOUNS or noun in self.words.months:
            return "cardinal-feminine" if article in ("las", "la") and number < 100 else "numbering"
        if noun == "mil":
            of = _THOUSANDS_OF.match(counted.match.string, counted.match.end())
            return f"cardinal-{_gender(of[1]) if of and number >= 200 else MASCULINE}"
        if number == 1 and noun in _FEMININE_WITH_UN:
            return "cardinal-masculine"
        is_singular = not noun.endswith("s")
        is_name = article in ("el", "número", "capítulo", "página")
        return (
            f"cardinal-{_gender(noun)}"
            if is_singular == (number == 1) and not (is_singular and is_name)
            else "numbering"
        )

    def _century(self, match: re.Match[str]) -> str:
        label = {"s.": "siglo", "ss.": "siglos"}.get(match[1], match[1])
        said = re.sub(ROMAN, lambda numeral: self._ranked(roman_value(numeral[0]), "masculine"), match[2])
        return f"{label} {re.sub(' ?- ?', ' a ', said)}"

    def _royal(self, match: re.Match[str]) -> str:
        name, numeral = match[1], match[2]
        is_cut_short = len(numeral) == 1 and _CUT_SHORT.match(match.string, match.end())
        if numeral in ("L", "XL") or is_cut_short or (numeral in ("X", "V") and name not in _FIFTH_OR_TENTH):
            return match[0]
        title = _RULING.search(match.string[max(0, match.start() - _LONGEST_RULING) : match.start()])
        if name in _RULERS or title or _RULED.match(match.string, match.end()):
            is_feminine = name in _QUEENS or (title and title["feminine"])
            return f"{name} {self._ranked(roman_value(numeral), 'feminine' if is_feminine else 'masculine')}"
        is_letter = numeral == "I" and _AFTER_INITIAL.match(match.string, match.end())
        is_letter = is_letter and not (name.lower() in _SECTIONS and match.string.startswith(". ", match.end()))
        # Las III Jornadas have an ordinal.
        return match[0] if is_letter or name.lower() in _NOT_NOUNS else f"{name} {roman_value(numeral)}"

    def _ranked(self, number: int, gender: str) -> str:
        """Return the ordinal up to the tenth, and the cardinal from then on."""
        return self.cardinal(number, f"ordinal-{gender}" if number <= 10 else "numbering")

    def _roman_ordinal(self, match: re.Match[str]) -> str:
        article, numeral = match[1] or "", match[2]
        if not article and (len(numeral) == 1 or numeral == "XL"):
            return match[0]
        is_feminine = article.strip().lower() == "la" if article else _gender(word_after(match).lower()) == FEMININE
        form = "ordinal-feminine" if is_feminine else "ordinal-masculine-adjective"
        return f"{article}{self.cardinal(roman_value(numeral), form)}"

    def _ordinal(self, match: re.Match[str]) -> str:
        number, masculine, feminine, short, plural = int(match[1]), *match.groups()[1:]
        # A class or a door is no noun: tercero B.
        noun = "" if _LETTER_AFTER.match(match.string, match.end()) else word_after(match).lower()
        if feminine:
            form = "feminine"
        elif short or (masculine and noun and noun not in _NOT_NOUNS and noun not in self.words.months):
            form = "masculine-adjective"
        else:
            form = "masculine"
        # Hace 30° a la sombra; a -5° en Ávila; a 5° bajo cero; hace 8°.
        is_temperature = noun == "bajo" or " ".join(words_before(match, 1)).lower() in ("-", "hace", "hacía", "hizo")
        is_angle = masculine == "°" and (number > 10 or is_temperature)
        is_angle = is_angle or (masculine == "º" and "." not in match[0] and (number >= 60 or _is_warmth(match, noun)))
        if number == 0 or (is_angle and (not noun or noun in _NOT_NOUNS)):
            return match[0].replace("º", "°")
        return set_apart(f"{self.cardinal(number, f'ordinal-{form}')}{'s' if plural else ''}", match)

    def _parts(self, match: re.Match[str]) -> str:
        """Return `dos terceras` of two thirds with their parts."""
        above = int(match[1])
        if not 0 < above < int(match[2]):
            return match[0]
        ordinal = self.cardinal(int(match[2]), "ordinal-feminine")
        return f"{self.cardinal(above, 'cardinal-feminine')} {ordinal}{'s' if above > 1 else ''}"

    def _time(self, match: re.Match[str]) -> str:
        hour, minute, with_hours = int(match[1]), int(match[2] or match[4]), match[3]
        said = self.cardinal(hour, "cardinal-feminine")
        if minute and 1 <= hour <= 12:
            said += f" y {({15: 'cuarto', 30: 'media'}).get(minute) or self.cardinal(minute)}"
        elif minute:
            said += f" {'cero ' if minute < 10 else ''}{self.cardinal(minute)}"
        if with_hours and not (minute and 1 <= hour <= 12):
            said += " hora" if hour == 1 else " horas"
        return set_apart(said + self._half_of_day(match, 5), match)

    def _time_of_seconds(self, match: re.Match[str]) -> str:
        hours, minutes, seconds = map(int, match.groups())
        return f"{hours} h{f', {minutes} min' if minutes else ''}{f' y {seconds} s' if seconds else ''}"

    def _hour(self, match: re.Match[str]) -> str:
        return set_apart(self.cardinal(int(match[1]), "cardinal-feminine") + self._half_of_day(match, 2), match)

    def _half_of_day(self, match: re.Match[str], group: int) -> str:
        letter = match[group] or match[group + 1]
        if not letter:
            return ""
        full_stop = "." if match[0].endswith(".") and match.end() == len(match.string) else ""
        return f" {letter.lower().replace('p', 'pe')} eme{full_stop}"


def _is_first_of_feminine(counted: Counted) -> bool:
    """Return whether a feminine noun comes after a second number: `entre 200 y 300 personas`, `1 o 2 veces`."""
    second = _SECOND.match(counted.match.string, counted.match.end())
    if second is None or second[2] in _NOT_NOUNS or (second[1] == "y" and counted.before[:1] != ["entre"]):
        return False
    return _gender(second[2]) == FEMININE and (counted.word_after != "mil" or counted.number >= 200)


def _is_warmth(match: re.Match[str], noun: str) -> bool:
    """Return whether `5º` is a temperature: hace 5º en Ávila, -5º, 5º bajo cero; but hace 2º de Bachillerato."""
    last, is_joined = " ".join(words_before(match, 1)).lower(), match.string[match.start() - 1] != " "
    is_warmth = last in ("-", "(-") if is_joined else last in ("hace", "hacía") and noun not in ("de", "y")
    return is_warmth or match.string.startswith(" bajo cero", match.end())


def _gender(noun: str) -> str:
    singular = noun.removesuffix("s")
    if singular in _MASCULINE_IN_A or singular.endswith("ista"):
        return MASCULINE
    stem = singular.removesuffix("e")
    known = {singular, stem, stem.removesuffix("c") + "z"} & _FEMININE_NOUNS
    return (
        "feminine"
        if known or singular.endswith(_FEMININE_ENDINGS) or stem.endswith(_FEMININE_ENDINGS[1:])
        else "masculine"
    )
