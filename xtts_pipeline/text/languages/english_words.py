"""Tables of English words: abbreviations, units, currencies, and words before Roman numerals."""

# Several entries a line keep the tables in sight.
# fmt: off
ABBREVIATIONS = {
    "mr": "mister", "mrs": "misses", "ms": "miz", "messrs": "messieurs", "dr": "doctor", "drs": "doctors",
    "prof": "professor", "rev": "reverend", "hon": "honorable", "gen": "general", "maj": "major", "col": "colonel",
    "capt": "captain", "lt": "lieutenant", "sgt": "sergeant", "gov": "governor", "pres": "president", "jr": "junior",
    "sr": "senior", "esq": "esquire", "co": "company", "corp": "corporation", "ltd": "limited", "inc": "incorporated",
    "dept": "department", "ave": "avenue", "blvd": "boulevard", "mt": "mount", "vs": "versus", "etc": "et cetera",
    "approx": "approximately", "vol": "volume", "rd": "road", "hwy": "highway", "bros": "brothers", "mme": "madame",
    "mlle": "mademoiselle", "cmdr": "commander", "supt": "superintendent",
}
# Abbreviations with inner full stops; other letters with full stops are read one by one.
DOTTED_WORDS = {
    "e.g": "for example", "i.e": "that is", "a.k.a": "also known as", "ph.d": "p h d", "q.v": "which see",
}
# Only with a capital letter, and before another: the last rep. of a set.
BEFORE_NAMES = {
    "Sen": "senator", "Rep": "representative", "Adm": "admiral", "Cpl": "corporal", "Pvt": "private", "Ft": "fort",
}
BEFORE_NUMBERS = {
    "fig": "figure", "figs": "figures", "p": "page", "pp": "pages", "ch": "chapter", "sec": "section", "no": "number",
    "nos": "numbers", "eq": "equation", "vols": "volumes", "art": "article",
    "ext": "extension", "tel": "telephone", "ca": "circa", "op": "opus", "apt": "apartment", "chap": "chapter",
    "pg": "page", "eqs": "equations",
}
# Those that are words in small letters: a nice chap. 5 minutes later.
WORDS_IN_SMALL_LETTERS = ("apt", "art", "chap", "op")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)
_MONTHS_WRITTEN = (*MONTHS, "Sept", *(month[:3] for month in MONTHS))
MONTH_NAMES = "|".join([*_MONTHS_WRITTEN, *(month.upper() for month in _MONTHS_WRITTEN)])
WEEKDAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday", "Thur": "Thursday",
    "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}
CURRENCIES = {
    "$": ("dollar", "cent"),
    "\u00a3": ("pound", "penny"),
    "\u20ac": ("euro", "cent"),
    "\u00a5": ("yen", "sen"),
    "\u20b9": ("rupee", "paisa"),
    "\u20bd": ("ruble", "kopeck"),
    "\u20a9": ("won", "jeon"),
    "\u20ba": ("lira", "kurush"),
    "\u20aa": ("shekel", "agora"),
    "\u20bf": ("bitcoin", "satoshi"),
    "\u00a2": ("cent", "cent"),
    "A$": ("Australian dollar", "cent"), "AU$": ("Australian dollar", "cent"),
    "C$": ("Canadian dollar", "cent"), "CA$": ("Canadian dollar", "cent"),
    "HK$": ("Hong Kong dollar", "cent"), "NZ$": ("New Zealand dollar", "cent"),
}
CURRENCY_SIGNS = "".join(sign for sign in CURRENCIES if len(sign) == 1)
SCALES = {
    "hundred": "hundred", "thousand": "thousand", "million": "million", "billion": "billion", "trillion": "trillion",
    "k": "thousand", "m": "million", "mil": "million", "mn": "million", "b": "billion",
    "bn": "billion", "tn": "trillion", "lakh": "lakh", "crore": "crore",
}
UNITS = {
    "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "m": "meter", "nm": "nanometer",
    "\u03bcm": "micrometer", "mi": "mile", "yd": "yard", "ft": "foot", "ha": "hectare", "kg": "kilogram", "g": "gram",
    "mg": "milligram", "\u03bcg": "microgram", "lb": "pound", "lbs": "pound", "oz": "ounce", "l": "liter",
    "L": "liter", "ml": "milliliter", "mL": "milliliter", "gal": "gallon", "h": "hour", "hr": "hour", "hrs": "hour",
    "min": "minute", "mins": "minute", "sec": "second", "secs": "second", "ms": "millisecond",
    "\u03bcs": "microsecond", "ns": "nanosecond", "yr": "year", "yrs": "year", "Hz": "hertz", "kHz": "kilohertz",
    "MHz": "megahertz", "GHz": "gigahertz", "dB": "decibel", "fps": "f p s", "W": "watt", "kW": "kilowatt",
    "MW": "megawatt", "GW": "gigawatt", "kWh": "kilowatt hour", "hp": "horsepower", "V": "volt", "mV": "millivolt",
    "kV": "kilovolt", "mA": "milliamp", "mAh": "milliamp hour", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte",
    "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte", "J": "joule", "kJ": "kilojoule", "cal": "calorie",
    "kcal": "kilocalorie", "Pa": "pascal", "kPa": "kilopascal", "USD": "u s dollar", "EUR": "euro", "GBP": "pound",
    "ppm": "part per million", "mph": "mile per hour", "kph": "kilometer per hour", "rpm": "revolution per minute",
    "mpg": "mile per gallon", "bpm": "beat per minute", "kbps": "kilobit per second", "Mbps": "megabit per second",
    "Gbps": "gigabit per second", "kgs": "kilogram", "kms": "kilometer", "tbsp": "tablespoon", "tsp": "teaspoon",
    "dL": "deciliter", "KM": "kilometer", "KG": "kilogram", "LBS": "pound",
}
# Words that may follow a slash besides the units.
PER_WORDS = {
    "s": "second", "second": "second", "minute": "minute", "hour": "hour", "day": "day", "week": "week",
    "month": "month", "year": "year", "night": "night", "person": "person", "head": "head", "piece": "piece",
    "word": "word", "mile": "mile", "pound": "pound", "gallon": "gallon", "liter": "liter", "mo": "month", "wk": "week",
}
PLURALS = {
    "penny": "pence", "foot": "feet", "inch": "inches", "agora": "agorot", "yen": "yen",
    "sen": "sen", "won": "won", "jeon": "jeon", "paisa": "paisa", "kurush": "kurush", "satoshi": "satoshi",
    "horsepower": "horsepower", "f p s": "f p s",
}
BOOKS_WITH_VERSES = (
    "Genesis", "Exodus", "Leviticus", "Numbers", "Deuteronomy", "Joshua", "Judges", "Ruth", "Samuel", "Kings",
    "Chronicles", "Ezra", "Nehemiah", "Esther", "Job", "Psalms?", "Proverbs", "Ecclesiastes", "Isaiah", "Jeremiah",
    "Lamentations", "Ezekiel", "Daniel", "Hosea", "Joel", "Amos", "Obadiah", "Jonah", "Micah", "Nahum", "Habakkuk",
    "Zephaniah", "Haggai", "Zechariah", "Malachi", "Matthew", "Mark", "Luke", "John", "Acts", "Romans", "Corinthians",
    "Galatians", "Ephesians", "Philippians", "Colossians", "Thessalonians", "Timothy", "Titus", "Philemon", "Hebrews",
    "James", "Peter", "Jude", "Revelation",
)
NUMBERED = frozenset([
    "act", "annex", "apollo", "appendix", "article", "bowl", "book", "canto", "category", "chapter", "class", "corps",
    "division", "episode", "figure", "grade", "group", "gemini", "level", "lesson", "mark", "olympiad", "part",
    "phase", "plate", "psalm", "saturn", "scene", "schedule", "section", "series", "stage", "table", "title", "type",
    "unit", "vol", "volume", "war",
])
RULERS = frozenset([
    "Abdul", "Adrian", "Albert", "Alexander", "Alexandra", "Alfonso", "Anne", "Artaxerxes", "Augustus", "Baldwin",
    "Basil", "Benedict", "Boniface", "Carl", "Carol", "Catherine", "Charles", "Christian", "Clement", "Cleopatra",
    "Conrad", "Constantine", "Darius", "David", "Edward", "Elizabeth", "Emmanuel", "Eric", "Eugene", "Ferdinand",
    "Francis", "Frederick", "George", "Gregory", "Gustav", "Gustavus", "Haakon", "Harald", "Harold", "Henri", "Henry",
    "Honorius", "Innocent", "Isabella", "Ivan", "James", "Joan", "John", "Joseph", "Juan", "Julius", "Justinian", "Leo",
    "Leopold", "Lothar", "Louis", "Ludwig", "Margaret", "Margrethe", "Maria", "Mary", "Matthias", "Maximilian",
    "Mehmed", "Michael", "Murad", "Napoleon", "Nicholas", "Olaf", "Oscar", "Otto", "Paul", "Pedro", "Peter", "Philip",
    "Pius", "Ptolemy", "Ramesses", "Ramses", "Richard", "Robert", "Rudolf", "Selim", "Shapur", "Sixtus", "Stephen",
    "Suleiman", "Theodosius", "Thutmose", "Umberto", "Urban", "Victor", "Victoria", "Vittorio", "Wilhelm", "William",
    "Xerxes",
])
TITLES = frozenset([
    "King", "Queen", "Pope", "Emperor", "Empress", "Tsar", "Czar", "Kaiser", "Prince", "Sultan", "Pharaoh", "Duke",
    "Saint", "Bishop",
])
# fmt: on


def small_letters(word: str) -> str:
    """Return the word in small letters that the tables have; re.IGNORECASE takes \u017f for s and \u0131 for i."""
    return word.lower().translate({0x17F: "s", 0x131: "i"})
