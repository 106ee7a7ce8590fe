"""Prove that a cache matches its manifest, byte by byte and record by record.

Needs no TensorFlow and no corpus. The manifest is checked before anything in it is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Literal

from xtts_pipeline.cache.build.receipts import RECEIPTS_FOLDER, Receipt
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    REJECTED_NAME,
    UTTERANCES_NAME,
    Manifest,
    ShardEntry,
    bucket_specs,
    load_manifest,
)
from xtts_pipeline.cache.format.problems import Kind, Problem, refuse
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.cache.verify.files import IGNORED_NAMES, check_files, check_receipts, regular_size
from xtts_pipeline.cache.verify.listings import ListingCheck, RejectedCheck, check_rejected, check_utterances
from xtts_pipeline.cache.verify.parallel import parallel_map
from xtts_pipeline.cache.verify.shards import ShardCheck, ShardVerifier
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.memory import keep_freed_memory
from xtts_pipeline.system.storage import folder_path
from xtts_pipeline.system.terminal import counted, join_lines

Level = Literal["quick", "full", "deep"]

# The facts that the receipt of a kept row and its line of utterances.jsonl share, in one order.
_FACTS = ("id", "text", "raw_text", "speaker", "language", "seconds", "frames", "tokens")
_ROW_FACTS = attrgetter(*_FACTS, "audio", "source.bytes", "checksum")
_LINE_FACTS = attrgetter(*_FACTS, "source.path", "source.bytes", "source.checksum")


@dataclass(frozen=True)
class VerifyReport:
    """Every problem, and the amount checked.

    `records` were decoded (`full`) or are listed in the manifest (`quick`); `shards` and `bytes` count shard files.
    `sampled` clips were recomputed (`deep`); `repaired` files were written again or removed before.
    """

    problems: tuple[Problem, ...] = ()
    records: int = 0
    shards: int = 0
    bytes: int = 0
    level: Level = "full"
    sampled: int = 0
    repaired: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def to_json(self) -> dict[str, object]:
        """Return the result of `xtts verify-cache --json`."""
        return {"valid": self.valid, **asdict(self)}

    def to_text(self) -> str:
        """Return the repaired files, one line for each problem, and a summary that names what was proved."""
        repaired = [f"repaired: {', '.join(self.repaired)}"] if self.repaired else []
        lines = [f"{problem.kind:10}  {problem.where}: {problem.detail}" for problem in self.problems]
        found = f", {counted(len(lines), 'problem')}" if lines else ""
        verdict = f"{'NOT VALID' if lines else 'valid'} ({self._proof()}){found}"
        amounts = f"{counted(self.records, 'record')}, {counted(self.shards, 'shard file')}, {self.bytes / 1e6:.1f} MB"
        return join_lines([*repaired, *lines, f"{verdict}: {amounts}"])

    def _proof(self) -> str:
        """Return the level and the limits of its proof."""
        if self.level == "quick":
            return "quick: names and sizes; no record was read"
        if self.level == "full":
            return "full"
        if not (self.valid or self.sampled):
            return "deep: no clip recomputed, the full level found problems"
        return f"deep: {self.sampled} of {counted(self.records, 'clip')} recomputed"


def verify_cache(folder: Path | str, level: Literal["quick", "full"] = "full", jobs: int = 2) -> VerifyReport:
    """Return every problem of a cache.

    `quick` checks the manifest, receipts, names and sizes; `full` also every byte and record, with `jobs` processes.
    Raises CacheError if the folder does not exist, is a file or is empty.
    """
    folder = folder if isinstance(folder, Path) else folder_path(folder)
    if folder.exists() and not folder.is_dir():
        raise CacheError(f"{folder}: is a file, expected the folder of a cache; name the folder")
    if not folder.is_dir() or {path.name for path in folder.iterdir()} <= IGNORED_NAMES:
        found = "an empty folder" if folder.is_dir() else "no such folder"
        raise CacheError(f"{folder}: found {found}, expected a cache; run xtts preprocess to make one")
    if (folder / MANIFEST_NAME).exists() and regular_size(folder / MANIFEST_NAME) is None:
        problem = Problem(Kind.NOT_A_FILE, MANIFEST_NAME, "found a link, pipe or folder, expected a regular file")
        return VerifyReport((problem,), level=level)
    try:
        manifest = load_manifest(folder)
    except CacheError as error:
        detail = str(error).removeprefix(f"{folder / MANIFEST_NAME}: ")
        return VerifyReport((Problem(Kind.MANIFEST, MANIFEST_NAME, detail),), level=level)
    problems = check_files(folder, manifest)
    receipts = check_receipts(folder, manifest)
    problems += [receipt for receipt in receipts.values() if isinstance(receipt, Problem)]
    sizes = {shard: size for shard in manifest.shards if (size := regular_size(folder / shard.name)) is not None}
    records = sum(shard.records for shard in sizes)
    wave_sizes = [regular_size(folder / name) or 0 for name in manifest.wave_files]
    if level == "full":
        content_problems, records = _check_contents(folder, manifest, list(sizes), receipts, jobs)
        problems += content_problems
    return VerifyReport(
        tuple(dict.fromkeys(problems)), records, len(sizes), sum(sizes.values()) + sum(wave_sizes), level
    )


def require_whole(folder: Path) -> None:
    """Raise CacheError if a file is missing, extra or wrongly sized: in a second, not hours into a run."""
    refuse(folder, verify_cache(folder, level="quick").problems)


def _check_contents(
    folder: Path,
    manifest: Manifest,
    shards: Sequence[ShardEntry],
    receipts: Mapping[ShardName, Receipt | Problem],
    jobs: int,
) -> tuple[list[Problem], int]:
    """Return the problems inside the existing listings and shards, and the number of records read."""
    # Irregular or wrongly sized listings are already reported.
    readable = {name for name, entry in manifest.files.items() if regular_size(folder / name) == entry.bytes}
    utterances = check_utterances(folder, manifest) if UTTERANCES_NAME in readable else ListingCheck()
    rejected = check_rejected(folder, manifest) if REJECTED_NAME in readable else RejectedCheck()
    problems = [*utterances.problems, *rejected.problems, *_receipt_problems(receipts, utterances, rejected, manifest)]
    verifier = ShardVerifier(folder, manifest)

    def check_shard(shard: ShardEntry) -> ShardCheck:
        return verifier.check(shard, utterances.by_shard.get(shard.name, ()) if utterances.is_whole else None)

    keep_freed_memory()
    checks = parallel_map(check_shard, shards, jobs)
    problems += [problem for check in checks for problem in check.problems]
    return problems, sum(check.records for check in checks)


def _receipt_problems(
    receipts: Mapping[ShardName, Receipt | Problem],
    utterances: ListingCheck,
    rejected: RejectedCheck,
    manifest: Manifest,
) -> Iterator[Problem]:
    """Yield the receipts whose rows differ from valid listings; preprocess would trust them."""
    specs = bucket_specs(manifest)
    for shard, receipt in receipts.items():
        if isinstance(receipt, Problem):
            continue
        where = f"{RECEIPTS_FOLDER}/{shard}.json"
        if utterances.is_whole:
            for bucket, file in enumerate(shard.files(len(specs))):
                lines = [_LINE_FACTS(entry) for entry in utterances.by_shard.get(file, ())]
                if [row.source and _ROW_FACTS(row) for row in receipt.kept_rows(specs, bucket)] != lines:
                    detail = f"its kept rows are not the {len(lines)} lines of {file} in {UTTERANCES_NAME}"
                    yield Problem(Kind.RECEIPT, where, detail)
        if rejected.is_whole:
            unknown = [
                row.id
                for row in receipt.rows
                if row.reason is not None and (row.id, row.reason, row.detail) not in rejected.rows
            ]
            if unknown:
                detail = f"{len(unknown)} of its rejected rows, {unknown[0]!r} first, are not in {REJECTED_NAME}"
                yield Problem(Kind.RECEIPT, where, detail)
