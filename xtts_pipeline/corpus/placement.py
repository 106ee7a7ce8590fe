"""Find where the names in a table lie: below which folder, after which leading parts, or by their stem alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xtts_pipeline.corpus.rows import SoundFiles, id_of

SAMPLED_NAMES = 50
MAX_PARTS = 12


@dataclass(frozen=True)
class Placement:
    """How a table's name becomes a path below the root: `strip` leading parts go, then `folder` comes before it.

    `by_stem` maps stems to paths; a name in it needs no folder.
    """

    folder: str = ""
    strip: int = 0
    has_backslashes: bool = False
    by_stem: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, name: str) -> str:
        """Return the name of a row without its leading parts, with `/` between the others."""
        if self.has_backslashes:
            name = name.replace("\\", "/")
        return name.split("/", self.strip)[-1] if self.strip else name

    def path_of(self, name: str) -> str:
        """Return the path of what `name_of` returns, relative to the root."""
        if self.by_stem and (found := self.by_stem.get(id_of(name.rpartition("/")[2]))):
            return found
        return f"{self.folder}/{name}" if self.folder and name else name


def place_names(
    names: Sequence[str],
    sounds: SoundFiles,
    base: str,
    preferred: Sequence[str],
    *,
    is_fixed: bool = False,
    is_anywhere: bool = False,
) -> Placement:
    """Return the placement that finds most of the names; the first of `preferred` if none finds any.

    `base` is the table's folder below the root. is_fixed: no folders but `preferred` are looked at. is_anywhere: names
    are looked for by their stems alone.
    """
    names = [name for name in names if name][:SAMPLED_NAMES]
    backslashes = 2 * sum("\\" in name for name in names) > len(names)
    folders = list(preferred)
    if not is_fixed:
        folders = list(dict.fromkeys([*folders, base, *(_below(base, name) for name in sounds.folders(base))]))
    best, most = Placement(folders[0]), 0
    most_parts = min(MAX_PARTS, max((name.count("/") + name.count("\\") * backslashes for name in names), default=0))
    candidates = (Placement(folder, strip, backslashes) for strip in range(most_parts + 1) for folder in folders)
    for placement in () if is_anywhere else candidates:
        hits = _count(names, sounds, placement)
        if hits > most:
            best, most = placement, hits
        if most == len(names):
            return best
    if is_anywhere or (not is_fixed and 2 * most < len(names)):
        by_stem = Placement(base, most_parts, backslashes, sounds.stems(base))
        if is_anywhere or _count(names, sounds, by_stem) > most:
            return by_stem
    return best


def place_hits(names: Sequence[str], sounds: SoundFiles) -> list[bool]:
    """Return whether each name names a sound, where most of them do."""
    placement = place_names(names, sounds, "", [""])
    return [sounds.has(placement.path_of(placement.name_of(name))) for name in names]


def _count(names: Sequence[str], sounds: SoundFiles, placement: Placement) -> int:
    return sum(sounds.has(placement.path_of(placement.name_of(name))) for name in names)


def _below(base: str, name: str) -> str:
    return f"{base}/{name}" if base else name
