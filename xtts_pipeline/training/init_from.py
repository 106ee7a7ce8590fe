"""Start a new run with the weights of another run's checkpoint: each weight that fits, table rows matched by name.

The EMA weights are used: they were validated. The trained weights are of little use without their moments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.config.schema import Config, show_value
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.system.terminal import counted
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint
from xtts_pipeline.training.checkpoints.state import CopiedRows, NetworkKind, Origin
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.resume import Resumption
from xtts_pipeline.training.settings import changed_settings

SPEAKER_TABLE, LANGUAGE_TABLE = "speaker_embedding", "language_embedding"
# How many names one line lists; the summary has all.
MAX_SHOWN = 6
# A network with less of the other one hardly profits from it.
LITTLE_SHARE = 0.5
# The sections that decide what a weight has learned.
_SECTIONS = frozenset({"audio", "text", "model", "vocoder"})


@dataclass(frozen=True)
class _RowNames:
    """The names of a table's rows, in the checkpoint and in the new run."""

    before: Sequence[str]
    now: Sequence[str]

    def kept(self) -> CopiedRows:
        new = tuple(name for name in self.now if name not in self.before)
        return CopiedRows(len(self.now) - len(new), new, tuple(name for name in self.before if name not in self.now))


def load_base(
    path: Path, network: NetworkKind, resumption: Resumption | None, log: Callable[[str], None]
) -> Checkpoint | None:
    """Return the checkpoint whose weights a new run starts with, or None for a resumed run that started so already.

    Raises CheckpointError if `path` has no intact checkpoint of the network, or if the resumed run began without one.
    """
    if resumption is None:
        checkpoint = load_checkpoint(path)
        checkpoint.require(network)
        return checkpoint
    origin = resumption.state.origin
    if origin is None:
        run = resumption.checkpoint.folder
        raise CheckpointError(
            f"{run}: its run was not begun with another one's weights; "
            "leave --init-from out, or choose another --output"
        )
    log(f"--init-from {path} is not read again: the run began with {origin.checkpoint}, and goes on")
    return None


def copy_weights(
    network: tf.Module, average: tf.Module, checkpoint: Checkpoint, config: Config, cache: CacheIdentity | None = None
) -> Origin:
    """Assign the checkpoint's EMA weights to a new network and its average where they fit; return what was kept.

    A variable fits if it has the same name and shape. With a `cache`, the tables of symbols, speakers and languages
    fit row by row, by the names there and in the checkpoint's cache. Other variables keep their initial values.
    Raises CheckpointError if nothing fits.
    """
    arrays = checkpoint.average
    tables = {} if cache is None else _table_names(checkpoint, cache, config)
    _add_missing_tables(arrays, tables, config.model.width)
    variables, averages = named_variables(network), named_variables(average)
    # A network of one speaker or language has no table of them, so no row is kept.
    tables |= {name: replace(tables[name], now=()) for name in (tables.keys() & arrays.keys()) - variables.keys()}
    new, misfits, kept_numbers = [], [], 0
    for name, variable in variables.items():
        if name not in arrays:
            new.append(name)
            continue
        value, kept = _merge(variable.numpy(), arrays[name], tables.get(name))
        if value is None:
            misfits.append(f"{name}: {list(arrays[name].shape)} there, {list(variable.shape)} here")
            continue
        kept_numbers += kept
        variable.assign(value)
        averages[name].assign(value)
    if not kept_numbers:
        raise CheckpointError(
            f"{checkpoint.folder}: nothing of its weights fits this network; use the model settings of that run"
        )
    symbols, speakers, languages = (
        tables[name].kept() if name in tables else CopiedRows()
        for name in ("text_encoder.embedding", SPEAKER_TABLE, LANGUAGE_TABLE)
    )
    return Origin(
        checkpoint=str(checkpoint.folder),
        step=checkpoint.step,
        weights_sha256=checkpoint.weights_sha256,
        kept_share=kept_numbers / sum(int(variable.shape.num_elements()) for variable in variables.values()),
        symbols=symbols,
        speakers=speakers,
        languages=languages,
        settings=tuple(
            f"{key}: {show_value(was)} there, {show_value(found)} here"
            for key, (was, found) in changed_settings(checkpoint.config, config).items()
            if key.partition(".")[0] in _SECTIONS
        ),
        new=tuple(new),
        misfits=tuple(misfits),
        left_behind=tuple(sorted(arrays.keys() - variables.keys())),
    )


def describe_origin(origin: Origin) -> list[str]:
    """Return lines that say what a run started with, and each thing that was not kept."""
    lines = [
        f"begun with the averaged weights of {origin.checkpoint}, which make {origin.kept_share:.1%} of this network"
    ]
    for kind, names in (("symbols", origin.symbols), ("speakers", origin.speakers), ("languages", origin.languages)):
        if names.new or names.left_behind:
            parts = [f"{names.kept} kept"]
            for what, rows in (("new", names.new), ("left behind", names.left_behind)):
                # In quotes, since symbols may be spaces, commas or brackets.
                shown = _shown([repr(name) for name in rows] if kind == "symbols" else rows)
                parts += [f"{len(rows)} {what} ({shown})"] if rows else []
            lines.append(f"{kind}: {', '.join(parts)}")
    if origin.settings:
        lines.append(f"other settings than that run's: {_shown(origin.settings, '; ')}")
    for what, weights in (
        ("begun anew, because the shape is another", origin.misfits),
        ("begun anew, because that run has none", origin.new),
        ("left behind, because this network has none", origin.left_behind),
    ):
        lines += [f"{what}: {counted(len(weights), 'weight')} (summary.json has their names)"] if weights else []
    return lines


def warn_of_little(origin: Origin) -> list[str]:
    """Return a warning if less than half of the network was taken."""
    if origin.kept_share >= LITTLE_SHARE:
        return []
    found = f"only {origin.kept_share:.1%} of the network came from {origin.checkpoint}"
    return [f"{found}; leave out --config, and --set for the network, to take its network"]


def _table_names(checkpoint: Checkpoint, cache: CacheIdentity, config: Config) -> dict[str, _RowNames]:
    """Return the row names of each variable that is a table."""
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
    """Add a zero row for a single speaker or language, which the checkpoint's network had no table for."""
    for name in {SPEAKER_TABLE, LANGUAGE_TABLE} & tables.keys():
        names = tables[name]
        if len(names.before) == 1 and len(names.now) > 1 and names.before[0] in names.now:
            arrays[name] = np.zeros((1, width), np.float32)


def _merge(fresh: np.ndarray, base: np.ndarray, names: _RowNames | None) -> tuple[np.ndarray | None, int]:
    """Return the fresh value with all of `base` that fits, or None, and how many numbers came from `base`."""
    if names is None:
        return (base, base.size) if (base.shape, base.dtype) == (fresh.shape, fresh.dtype) else (None, 0)
    if base.shape[1:] != fresh.shape[1:] or len(base) != len(names.before):
        return None, 0
    row_of = {name: row for row, name in enumerate(names.before)}
    pairs = [(row, row_of[name]) for row, name in enumerate(names.now) if name in row_of]
    merged = fresh.copy()
    for row, base_row in pairs:
        merged[row] = base[base_row]
    return merged, len(pairs) * int(np.prod(fresh.shape[1:]))


def _shown(names: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(names) - MAX_SHOWN} more (summary.json has all)" if len(names) > MAX_SHOWN else ""
    return separator.join(names[:MAX_SHOWN]) + more
