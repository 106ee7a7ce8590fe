"""A voice folder: all that speaks of a run, in one folder that can be moved and published.

It holds a checkpoint of the acoustic model and one of the vocoder, both of the EMA weights alone, the settings, a model
card, samples, and voice.json with the checksum of each of these files. Imports no TensorFlow.
"""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError, field_validator
from pydantic.dataclasses import dataclass

from xtts_pipeline import __version__
from xtts_pipeline.errors import CheckpointError, DamagedVoiceError
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.sealed_json import canonical_json, seal_json, unseal_json
from xtts_pipeline.system.strict_json import STRICT, first_problem
from xtts_pipeline.training.checkpoints.run_folder import (
    ACOUSTIC_FOLDER,
    CONFIG_NAME,
    STATE_NAME,
    VOCODER_FOLDER,
    VOICE_NAME,
    WEIGHTS_NAME,
)
from xtts_pipeline.training.checkpoints.state import FileDigest, digest_of

VOICE_VERSION = 1
CARD_NAME, SAMPLES_FOLDER = "README.md", "samples"
_MOST_BYTES = 1 << 20
_ACOUSTIC = tuple(f"{ACOUSTIC_FOLDER}/{name}" for name in (STATE_NAME, WEIGHTS_NAME))
_VOCODER = tuple(f"{VOCODER_FOLDER}/{name}" for name in (STATE_NAME, WEIGHTS_NAME))
_SAMPLE = re.compile(rf"{SAMPLES_FOLDER}/[a-z0-9-]+\.wav")
_REMEDY = "the file is damaged or was changed: copy the folder again, or export its run again"


@dataclass(frozen=True, config=STRICT)
class VoiceTerms:
    """What the maker of a voice says of its use.

    license: that of the voice, an SPDX identifier or a text. data_license: that of the recordings, and the consent of
    their speakers. datasets: names of the data sets, if they have any.
    """

    license: Annotated[str, Field(min_length=1)]
    data_license: Annotated[str, Field(min_length=1)]
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True, config=STRICT)
class Voice:
    """The content of voice.json. `files` has every other file of the folder by its path in it."""

    voice_version: int
    xtts_pipeline: str
    terms: VoiceTerms
    files: dict[str, FileDigest]

    @field_validator("files")
    @classmethod
    def _known(cls, files: dict[str, FileDigest]) -> dict[str, FileDigest]:
        known = {CARD_NAME, CONFIG_NAME, *_ACOUSTIC, *_VOCODER}
        unknown = sorted(name for name in files if name not in known and not _SAMPLE.fullmatch(name))
        if unknown:
            raise ValueError(f"files: found {unknown[0]!r}, expected the files of a voice folder alone")
        missing = [name for name in (CONFIG_NAME, *_ACOUSTIC) if name not in files]
        missing += [name for name in _VOCODER if name not in files and any(other in files for other in _VOCODER)]
        if missing:
            raise ValueError(f"files: found no {missing[0]}")
        return files

    @property
    def has_vocoder(self) -> bool:
        """Whether a trained vocoder lies in the folder; without one, Griffin-Lim speaks."""
        return _VOCODER[0] in self.files

    @property
    def used_files(self) -> list[str]:
        """The files that decide what is spoken. The card and the samples may be edited."""
        return [CONFIG_NAME, *_ACOUSTIC, *(_VOCODER if self.has_vocoder else ())]


_VOICE = TypeAdapter(Voice)


def seal_voice(folder: Path, terms: VoiceTerms) -> Voice:
    """Write voice.json for the files in a folder. Raises OSError."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): digest_of(path.read_bytes()) for path in paths}
    voice = Voice(VOICE_VERSION, __version__, terms, files)
    (folder / VOICE_NAME).write_bytes(seal_json(asdict(voice)))
    return voice


def verify_voice(folder: Path) -> Voice:
    """Return the content of voice.json after comparing every used file with it.

    Paths in voice.json are never followed: only the fixed names of a voice's files are opened. Raises CheckpointError
    if the folder is no voice or has another version, DamagedVoiceError that names the file if any byte changed.
    """
    path = folder / VOICE_NAME
    try:
        content = unseal_json(read_regular_file(path, _MOST_BYTES, follow_links=False))
    except FileNotFoundError:
        expected = "expected a voice folder, as `xtts export --format voice` writes"
        raise CheckpointError(f"{folder}: found no {VOICE_NAME}, {expected}") from None
    except OSError as error:
        raise DamagedVoiceError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from None
    except ValueError as error:
        raise DamagedVoiceError(f"{path}: found {error}; {_REMEDY}") from None
    if (version := content.get("voice_version")) != VOICE_VERSION:
        problem = f"found voice version {version}, expected {VOICE_VERSION}"
        raise CheckpointError(f"{path}: {problem}; export its run with this version, or install that of the voice")
    try:
        voice = _VOICE.validate_json(canonical_json(content), strict=True)
    except ValidationError as error:
        raise DamagedVoiceError(f"{path}: {first_problem(error)}; {_REMEDY}") from None
    for name in voice.used_files:
        _verify_file(folder / name, voice.files[name])
    if not voice.has_vocoder and (folder / VOCODER_FOLDER).exists():
        raise DamagedVoiceError(f"{folder / VOCODER_FOLDER}: is not in {VOICE_NAME}; {_REMEDY}")
    return voice


def _verify_file(path: Path, expected: FileDigest) -> None:
    try:
        found = digest_of(read_regular_file(path, expected.bytes, follow_links=False))
    except OSError as error:
        raise DamagedVoiceError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from None
    if found.bytes != expected.bytes:
        raise DamagedVoiceError(f"{path}: found {found.bytes} bytes, expected {expected.bytes}; {_REMEDY}")
    if found != expected:
        raise DamagedVoiceError(f"{path}: its SHA-256 differs from that in {VOICE_NAME}; {_REMEDY}")
