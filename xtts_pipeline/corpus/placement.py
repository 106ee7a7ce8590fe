"""Find the sounds that a table names: where the table says, else by the end of their paths anywhere below it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xtts_pipeline.corpus.sounds import SoundFiles
from xtts_pipeline.errors import LayoutError, Reason, RowError
from xtts_pipeline.system.terminal import printable, shell_word

SAMPLED_NAMES = 50
MAX_PARTS = 12


@dataclass
class Placement:
    """How a table's name becomes a path below the root: `strip` leading parts go, then `folder` comes before it.

    A name that is not there is looked for below `search`. `is_guess`: so was the folder, and each name must be the only
    one of its kind. `strays` counts the sounds that were found elsewhere.
    """

    sounds: SoundFiles
    search: str
    folder: str
    strip: int = 0
    has_backslashes: bool = False
    is_guess: bool = False
    strays: int = 0

    def name_of(self, name: str) -> str:
        """Return the name of a row without its leading parts, with `/` between the others."""
        if self.has_backslashes:
            name = name.replace("\\", "/")
        return name.split("/", self.strip)[-1] if self.strip else name

    def paths_of(self, name: str) -> list[str]:
        """Return the paths of the sounds that a name of `name_of` may mean."""
        path = _below(self.folder, name)
        if not self.is_guess and self.sounds.has(path):
            return [path]
        return self.sounds.ending_with(name, self.search)

    def find(self, name: str) -> str:
        """Return the path of the sound with a name of `name_of`. Raises RowError if there is none, or more than one."""
        path = _below(self.folder, name)
        found = self.paths_of(name)
        if len(found) > 1:
            detail = f"{printable(found[0])} and {printable(found[1])} both fit {printable(name)}"
            raise RowError(
                Reason.BAD_ROW, f"{detail}; write the path into the table, or name its folder by --audio-dir"
            )
        if found:
            self.strays += found[0].rpartition("/")[0] != path.rpartition("/")[0]
            path = found[0]
        return self.sounds.find(path)


def place_names(
    names: Sequence[str], sounds: SoundFiles, base: str, preferred: str, *, is_fixed: bool = False
) -> Placement:
    """Return the placement that finds most of the names; that of the folder `preferred` if none finds any.

    `base` is the table's folder below the root. is_fixed: nothing outside `preferred` is looked at. Raises LayoutError
    if most names are those of several sounds.
    """
    placement, sampled = _placement(names, sounds, base, preferred, is_fixed=is_fixed), _sampled(names)
    clashes = [paths for name in sampled if len(paths := placement.paths_of(placement.name_of(name))) > 1]
    if 2 * len(clashes) > len(sampled):
        first, second = map(printable, clashes[0][:2])
        count = f"{len(clashes)} of the first {len(sampled)} names"
        ways = [f"--audio-dir {shell_word(path.rpartition('/')[0] or '.')}" for path in (first, second)]
        raise LayoutError(
            f"{sounds.root}: {count} are those of several sounds, such as {first} and {second}",
            f"add {' or '.join(ways)}, or write the paths into the table",
        )
    return placement


def place_hits(names: Sequence[str], sounds: SoundFiles) -> list[bool]:
    """Return whether each name names a sound, where most of them do."""
    placement = _placement(names, sounds, "", "")
    return [bool(placement.paths_of(placement.name_of(name))) for name in names]


def _placement(
    names: Sequence[str], sounds: SoundFiles, base: str, preferred: str, *, is_fixed: bool = False
) -> Placement:
    names, search = _sampled(names), preferred if is_fixed else base
    backslashes = 2 * sum("\\" in name for name in names) > len(names)
    names = [name.replace("\\", "/") if backslashes else name for name in names]
    best, most = Placement(sounds, search, preferred, has_backslashes=backslashes), 0
    for strip in range(min(MAX_PARTS, max((name.count("/") for name in names), default=0)) + 1):
        for folder in dict.fromkeys([preferred, search]):
            placement = Placement(sounds, search, folder, strip, backslashes)
            hits = sum(sounds.has(_below(folder, placement.name_of(name))) for name in names)
            if hits > most:
                best, most = placement, hits
    if most == len(names):
        return best
    votes = Counter[tuple[str, int]]()
    for name in names:
        for path in sounds.ending_with(name, search):
            parts = name.count("/") + 1
            shared = sounds.shared_parts(name, path)
            votes["/".join(path.split("/")[:-shared]), parts - shared] += 1
    (folder, strip), count = votes.most_common(1)[0] if votes else (("", 0), 0)
    return Placement(sounds, search, folder, strip, backslashes, is_guess=True) if count > most else best


def _sampled(names: Sequence[str]) -> list[str]:
    return [name for name in names if name][:SAMPLED_NAMES]


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else name
