"""Read addresses of the web and of mail aloud."""

import re
from collections.abc import Callable, Mapping

_COMMON_ENDINGS = r"com|org|net|edu|gov|io|info|eu"


def address_reader(signs: Mapping[str, str], endings: str) -> Callable[[str], str]:
    """Return a function that puts the signs of a text's addresses in words.

    Without `www.` or a scheme, a site ends in a common name or in one of `endings`, those of countries.
    """
    pattern = re.compile(
        r"(?<![\w.@/+-])(?:(?i:https?|ftp)://(?P<link>[^\s<>\"]+)|(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
        rf"|(?P<site>(?i:www)\.[^\s<>\"]+|(?:[\w-]+\.)+(?:{endings}|{_COMMON_ENDINGS})(?![\w-])(?:/[^\s<>\"]*)?))"
    )
    sign = re.compile(rf"[{re.escape(''.join(signs))}]")

    def read(match: re.Match[str]) -> str:
        written = match["link"] or match["mail"] or match["site"]
        address = written.rstrip(".,;:!?'\")]}")
        spaced = sign.sub(lambda found: f" {signs[found[0]]} ", address.rstrip("/"))
        return " ".join("w w w" if word.lower() == "www" else word for word in spaced.split()) + written[len(address) :]

    return lambda text: pattern.sub(read, text)
