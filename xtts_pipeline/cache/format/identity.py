"""What a model and its run must know of their cache, so that the model speaks without it and the run knows it again."""

import hashlib
import unicodedata
from dataclasses import dataclass, replace

from xtts_pipeline.cache.format.manifest import Manifest, manifest_bytes
from xtts_pipeline.cache.format.schema import RecordSpec


def records_digest(manifest: Manifest, *, with_waves: bool = False) -> str:
    """Return a digest of the records and their files; caches with equal digests are read alike.

    Only the training of a vocoder reads waves; without them, caches that differ in them alone have equal digests.
    """
    if not with_waves:
        settings = manifest.cache.model_copy(update={"store_waves": False})
        manifest = replace(manifest, cache=settings, waves=())
    return hashlib.sha256(manifest_bytes(manifest)).hexdigest()


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
