"""What a new run takes over from another one's checkpoint: every weight that fits, matched by name down to single symbols and speakers.

The averaged weights are taken, for they are what was validated and what speaks; the trained ones mean little without their moments.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xtts_pipeline.cache.format.manifest import CacheIdentity
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.model.network import Network
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.files import Checkpoint
from xtts_pipeline.training.checkpoints.state import NamesKept, Origin
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.config_diff import changed_settings

AVERAGE_PREFIX = "average."
SPEAKER_TABLE, LANGUAGE_TABLE = "speaker_embedding", "language_embedding"
# How many names a line holds; the summary has all.
MOST_SHOWN = 6
# The settings that say what a weight was learnt for; those of training are the new run's own.
_SECTIONS = frozenset({"audio", "text", "model"})


@dataclass(frozen=True)
class _RowNames:
    """The names of a table's rows, before and now."""

    before: Sequence[str]
    now: Sequence[str]

    def kept(self) -> NamesKept:
        """Return which of them go on."""
        new = tuple(name for name in self.now if name not in self.before)
        return NamesKept(len(self.now) - len(new), new, tuple(name for name in self.before if name not in self.now))


def inherit(network: Network, average: Network, checkpoint: Checkpoint, cache: CacheIdentity, config: Config) -> Origin:
    """Give a fresh network, and its average, the checkpoint's averaged weights wherever they fit; return what was and was not kept.

    A variable fits whole if it has the same name and shape. The tables of symbols, speakers and languages fit row by row, by the names of
    `cache` and of the cache that the checkpoint is of. What does not fit stays as it began. Raises CheckpointError if nothing fits.
    """
    arrays = {
        name.removeprefix(AVERAGE_PREFIX): array
        for name, array in checkpoint.arrays.items()
        if name.startswith(AVERAGE_PREFIX)
    }
    tables = _tables(checkpoint, cache, config)
    _add_missing_tables(arrays, tables, config.model.width)
    variables, averages = named_variables(network), named_variables(average)
    new, misfits, kept_numbers = [], [], 0
    for name, variable in variables.items():
        if name not in arrays:
            new.append(name)
            continue
        value, kept = _merged(variable.numpy(), arrays[name], tables.get(name))
        if value is None:
            misfits.append(f"{name}: {list(arrays[name].shape)} there, {list(variable.shape)} here")
            continue
        kept_numbers += kept
        for follower in (variable, averages[name]):
            follower.assign(value)
    if not kept_numbers:
        raise CheckpointError(
            f"{checkpoint.folder}: nothing of its weights fits this network; use the model settings of that run"
        )
    symbols, speakers, languages = (
        tables[name].kept() for name in ("text_encoder.embedding", SPEAKER_TABLE, LANGUAGE_TABLE)
    )
    return Origin(
        checkpoint=str(checkpoint.folder),
        step=checkpoint.step,
        weights_sha256=checkpoint.weights_sha256,
        kept_share=kept_numbers / sum(int(variable.shape.num_elements()) for variable in variables.values()),
        symbols=symbols,
        speakers=speakers,
        languages=languages,
        settings=tuple(_setting_lines(checkpoint.config, config)),
        new=tuple(new),
        misfits=tuple(misfits),
        left_behind=tuple(sorted(arrays.keys() - variables.keys())),
    )


def origin_lines(origin: Origin) -> list[str]:
    """Return what a person should know of where a run begins: what was kept, and each thing that was not."""
    lines = [
        f"begun with the averaged weights of {origin.checkpoint}, which make {origin.kept_share:.1%} of this network"
    ]
    for kind, names in (("symbols", origin.symbols), ("speakers", origin.speakers), ("languages", origin.languages)):
        if names.new or names.left_behind:
            parts = [f"{names.kept} kept"]
            parts += [f"{len(names.new)} new ({_shown(names.new)})"] if names.new else []
            parts += (
                [f"{len(names.left_behind)} left behind ({_shown(names.left_behind)})"] if names.left_behind else []
            )
            lines.append(f"{kind}: {', '.join(parts)}")
    for what, names_of in (
        ("other settings than that run's", origin.settings),
        ("begun anew, because the shape is another", origin.misfits),
        ("begun anew, because that run has none", origin.new),
        ("left behind, because this network has none", origin.left_behind),
    ):
        lines += [f"{what}: {_shown(names_of, '; ')}"] if names_of else []
    return lines


def _tables(checkpoint: Checkpoint, cache: CacheIdentity, config: Config) -> dict[str, _RowNames]:
    """Return the variables whose rows have names."""
    before = Tokenizer(checkpoint.cache.symbols, checkpoint.config.text.blank)
    now = Tokenizer(cache.symbols, config.text.blank)
    symbols = _RowNames(
        *([tokenizer.name_of(token) for token in range(tokenizer.symbol_count)] for tokenizer in (before, now))
    )
    return {
        "text_encoder.embedding": symbols,
        "aligner.embedding": symbols,
        SPEAKER_TABLE: _RowNames(checkpoint.cache.speakers, cache.speakers),
        LANGUAGE_TABLE: _RowNames(checkpoint.cache.languages, cache.languages),
    }


def _add_missing_tables(arrays: dict[str, np.ndarray], tables: Mapping[str, _RowNames], width: int) -> None:
    """Add the table that a cache of one speaker or language does without: a row of zeros, for nothing was added for it."""
    for name in (SPEAKER_TABLE, LANGUAGE_TABLE):
        names = tables[name]
        if len(names.before) == 1 and len(names.now) > 1 and names.before[0] in names.now:
            arrays[name] = np.zeros((1, width), np.float32)


def _merged(fresh: np.ndarray, inherited: np.ndarray, names: _RowNames | None) -> tuple[np.ndarray | None, int]:
    """Return a variable's value with all of the inherited that fits, or None, and how many of its numbers were inherited."""
    if names is None:
        return (
            (inherited, inherited.size)
            if (inherited.shape, inherited.dtype) == (fresh.shape, fresh.dtype)
            else (None, 0)
        )
    if inherited.shape[1:] != fresh.shape[1:] or len(inherited) != len(names.before):
        return None, 0
    row_of = {name: row for row, name in enumerate(names.before)}
    pairs = [(row, row_of[name]) for row, name in enumerate(names.now) if name in row_of]
    merged = fresh.copy()
    for row, inherited_row in pairs:
        merged[row] = inherited[inherited_row]
    return merged, len(pairs) * int(np.prod(fresh.shape[1:]))


def _setting_lines(before: Config, now: Config) -> list[str]:
    changes = changed_settings(before, now)
    return [
        f"{key}: {json.dumps(was)} there, {json.dumps(found)} here"
        for key, (was, found) in changes.items()
        if key.partition(".")[0] in _SECTIONS
    ]


def _shown(names: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(names) - MOST_SHOWN} more (summary.json has all)" if len(names) > MOST_SHOWN else ""
    return separator.join(names[:MOST_SHOWN]) + more
