"""How many clips each speaker and each language of a corpus or cache has, in words."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from xtts_pipeline.errors import listed


def clip_count_lines(speakers: Mapping[str, int], languages: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for the clips of each speaker and one for those of each language, where there are several."""
    for kind, clips in (("speakers", speakers), ("languages", languages)):
        if len(clips) > 1:
            yield f"{kind}: {listed([f'{name} {count}' for name, count in Counter(clips).most_common()])}"


def like_speakers_warnings(speakers: Collection[str]) -> Iterator[str]:
    """Yield a warning for each group of speakers whose names differ in case or spaces alone."""
    groups: dict[str, list[str]] = {}
    for name in sorted(speakers):
        groups.setdefault("".join(name.casefold().split()), []).append(name)
    for group in groups.values():
        if len(group) > 1:
            names = listed([repr(name) for name in group])
            yield f"speakers {names} differ in case or spaces alone; if they are one, give it one name in the corpus"
