"""What a model must know of the cache that it was trained on, so that it can speak without the cache."""

import unicodedata
from dataclasses import dataclass

from xtts_pipeline.cache.format.schema import RecordSpec


@dataclass(frozen=True)
class CacheIdentity:
    """What a checkpoint keeps of its cache.

    speaker_languages: the language of most clips of each speaker, where there are several speakers and languages.
    """

    fingerprint: str
    spec: RecordSpec
    symbols: tuple[str, ...]
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    speaker_languages: tuple[str, ...] = ()

    def default_language(self, speaker: str | None) -> str:
        """Return the language of a speaker, by default of the first one; the first language if that is not known."""
        if not self.speaker_languages:
            return self.languages[0]
        kept = unicodedata.normalize("NFC", speaker or "")  # as preprocessing keeps speakers
        return self.speaker_languages[self.speakers.index(kept) if kept in self.speakers else 0]
