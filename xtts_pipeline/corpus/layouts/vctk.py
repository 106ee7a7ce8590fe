"""Read VCTK: transcripts in `txt/SPEAKER/`, sounds in `wav48/` (0.80) or `wav48_silence_trimmed/` (0.92)."""

from pathlib import Path

from xtts_pipeline.corpus.folders import add_clip, id_of_speaker, list_folder
from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.rows import RowCollector
from xtts_pipeline.corpus.sounds import SOUND_SUFFIXES
from xtts_pipeline.system.terminal import printable

TEXT_FOLDER = "txt"
SOUND_FOLDERS = ("wav48_silence_trimmed", "wav48")
# 0.92 has two microphones for each clip; the second is used if the first is missing.
MICROPHONES = ("_mic1", "_mic2")


class Vctk:
    """The speaker is the folder's name; the id is the file's stem without its microphone."""

    name = "vctk"
    looked_for = f"{' or '.join(f'{folder}/SPEAKER/' for folder in SOUND_FOLDERS)} beside {TEXT_FOLDER}/SPEAKER/*.txt"
    parts = (SOUND_FOLDERS, (TEXT_FOLDER,))

    def find(self, source: Path, _options: ReadOptions) -> FoundCorpus | None:
        """Return the folder that holds both the sounds and the transcripts."""
        sounds = any((source / folder).is_dir() for folder in SOUND_FOLDERS)
        return FoundCorpus(source) if sounds and (source / TEXT_FOLDER).is_dir() else None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add a row for each clip, speaker by speaker: each transcript, and each sound that has none."""
        sounds = next(folder for folder in SOUND_FOLDERS if (found.root / folder).is_dir())
        spoken = set(list_folder(sounds, rows).folders)
        written = set(list_folder(TEXT_FOLDER, rows).folders)
        for speaker in sorted(spoken | written):
            clips = _clips(f"{sounds}/{speaker}", rows) if speaker in spoken else {}
            texts = list_folder(f"{TEXT_FOLDER}/{speaker}", rows).files if speaker in written else ()
            stems = {name.removesuffix(".txt") for name in texts if name.endswith(".txt")}
            for stem in sorted(stems | clips.keys()):
                audio = clips.get(stem, f"{sounds}/{speaker}/{stem}")
                transcript = f"{TEXT_FOLDER}/{speaker}/{stem}.txt" if stem in stems else None
                expected = f"{TEXT_FOLDER}/{printable(speaker)}/{printable(stem)}.txt"
                add_clip(rows, speaker, id_of_speaker(speaker, stem), audio, transcript, expected)


def _clips(folder: str, rows: RowCollector) -> dict[str, str]:
    """Return stem without microphone -> path of the sound, that of the first microphone if there are two."""
    clips: dict[str, str] = {}
    for name in list_folder(folder, rows).files:
        stem, _, suffix = name.rpartition(".")
        if f".{suffix.lower()}" in SOUND_SUFFIXES:
            for microphone in MICROPHONES:
                stem = stem.removesuffix(microphone)
            # Names come sorted, so the first microphone comes first.
            clips.setdefault(stem, f"{folder}/{name}")
    return clips
