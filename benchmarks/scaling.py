"""Compute on paper how a corpus of many hours trains on many GPUs: sizes, step times and bottlenecks.

    python benchmarks/scaling.py --hours 1000 100000 --gpus 1 8 64 256
    python benchmarks/scaling.py --device-tflops 400 --store-gb-per-s 2 --preset small

Nothing is run or measured, and only Python's standard library is imported. Each constant is an option. The printed
table names the source of each measured constant; the others are assumptions. docs/scaling.md holds the default output.
"""

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace

SECONDS_PER_HOUR = 3600.0
GIGA, TERA = 1e9, 1e12
FLOAT32_BYTES = 4
ASSUMED = "assumed"
# Operations of the matrix products of one train step at 200 x 880 (perf.benchmark.device.matrix_operations),
# parameters, and clips per GPU.
PRESETS = {
    "small": {"gflop_per_clip": 16.8, "parameters_m": 8.8, "clips_per_gpu": 16.0},
    "base": {"gflop_per_clip": 52.6, "parameters_m": 27.9, "clips_per_gpu": 32.0},
}


def constant(default: float, source: str) -> float:
    """Return a field with a default and where it comes from."""
    value: float = field(default=default, metadata={"source": source})
    return value


@dataclass(frozen=True)
class Constants:
    """The constants of the computation; names carry their units."""

    clip_seconds: float = constant(5.95, "measured: mean of 13,090 clips, LJSpeech's layout and lengths")
    record_bytes: float = constant(
        141_764, "measured: the shards of those 13,090 clips, one shape of 200 tokens x 880 frames"
    )
    listing_line_bytes: float = constant(496, "measured: their utterances.jsonl")
    shard_entry_bytes: float = constant(134, "measured: their manifest")
    records_per_shard: float = constant(256, "default of cache.records_per_shard")
    preprocess_cpu_s_per_hour: float = constant(
        3.72, "measured on slower cores: 27.3 CPU s for 4,000 clips of 6.6 s, with trimming"
    )
    preprocess_bytes_per_row: float = constant(
        2_100, "measured in an earlier version: the parent's 90 MB at 4,000 clips and 109 MB at 13,100"
    )
    preprocess_cores: float = constant(64, ASSUMED)
    read_cpu_ms_per_record: float = constant(
        0.28, "measured: `ours` of the input benchmark on two busy cores; 0.17 on quiet ones"
    )
    gflop_per_clip: float = constant(
        PRESETS["base"]["gflop_per_clip"],
        "counted: the products of a step at 200 x 880",
    )
    parameters_m: float = constant(PRESETS["base"]["parameters_m"], "counted: the network of the preset")
    clips_per_gpu: float = constant(
        PRESETS["base"]["clips_per_gpu"], "the preset's batch, or a part of it, on each GPU"
    )
    device_tflops: float = constant(300.0, ASSUMED + ": peak of one GPU in bfloat16")
    device_share: float = constant(0.25, ASSUMED + ": share of the peak that the step reaches")
    gpus_per_machine: float = constant(8, ASSUMED)
    cores_per_machine: float = constant(64, ASSUMED)
    link_gb_per_s: float = constant(200.0, ASSUMED + ": all-reduce bandwidth between the GPUs of a machine")
    network_gb_per_s: float = constant(12.5, ASSUMED + ": all-reduce bandwidth of a machine to others (100 Gb/s)")
    network_latency_us: float = constant(20.0, ASSUMED + ": of one message, between machines")
    machine_disk_gb_per_s: float = constant(3.0, ASSUMED + ": one local NVMe disk")
    machine_disk_tb: float = constant(3.0, ASSUMED + ": its size")
    store_gb_per_s: float = constant(1.0, ASSUMED + ": from an object store to one machine")
    store_total_gb_per_s: float = constant(25.0, ASSUMED + ": from the store to all machines together")


@dataclass(frozen=True)
class Scale:
    """The figures for one number of GPUs; each time is of one step in milliseconds."""

    constants: Constants
    hours: float
    gpus: int

    @property
    def machines(self) -> int:
        """Number of machines that the GPUs fill."""
        return -int(-self.gpus // self.constants.gpus_per_machine)

    @property
    def clips(self) -> float:
        """Number of clips in the corpus."""
        return self.hours * SECONDS_PER_HOUR / self.constants.clip_seconds

    @property
    def compute_ms(self) -> float:
        """Computing one GPU's share of the batch."""
        each = self.constants
        operations = each.gflop_per_clip * GIGA * each.clips_per_gpu
        return 1e3 * operations / (each.device_tflops * TERA * each.device_share)

    @property
    def reduce_ms(self) -> float:
        """Reducing the gradients: a ring within each machine, then one between machines."""
        each, gradient_bytes = self.constants, self.constants.parameters_m * 1e6 * FLOAT32_BYTES
        within = min(self.gpus, each.gpus_per_machine)
        seconds = 2.0 * (within - 1) / within * gradient_bytes / (each.link_gb_per_s * GIGA)
        seconds += 2.0 * (self.machines - 1) / self.machines * gradient_bytes / (each.network_gb_per_s * GIGA)
        return 1e3 * (seconds + 2.0 * (self.machines - 1) * each.network_latency_us * 1e-6)

    @property
    def step_bytes_per_machine(self) -> float:
        """Bytes that one machine reads for a step."""
        return (
            min(self.gpus, self.constants.gpus_per_machine) * self.constants.clips_per_gpu * self.constants.record_bytes
        )

    @property
    def disk_ms(self) -> float:
        """Reading a step's records from a machine's own disk."""
        return 1e3 * self.step_bytes_per_machine / (self.constants.machine_disk_gb_per_s * GIGA)

    @property
    def store_ms(self) -> float:
        """Reading a step's records from the store, which all machines share."""
        each = self.constants
        per_machine = min(each.store_gb_per_s, each.store_total_gb_per_s / self.machines)
        return 1e3 * self.step_bytes_per_machine / (per_machine * GIGA)

    @property
    def parse_ms(self) -> float:
        """Making batches of records with all of a machine's cores."""
        each = self.constants
        clips = min(self.gpus, each.gpus_per_machine) * each.clips_per_gpu
        return clips * each.read_cpu_ms_per_record / each.cores_per_machine

    @property
    def step_ms(self) -> float:
        """A step that reads from a local disk: computing and reducing, or what takes longer in parallel."""
        return max(self.compute_ms + self.reduce_ms, self.disk_ms, self.parse_ms)

    @property
    def epoch_hours(self) -> float:
        """The time of one pass over all clips."""
        return self.clips / (self.gpus * self.constants.clips_per_gpu) * self.step_ms * 1e-3 / SECONDS_PER_HOUR

    @property
    def efficiency(self) -> float:
        """Speed over that of as many independent GPUs."""
        return replace(self, gpus=1).step_ms / self.step_ms

    @property
    def read_gb_per_s(self) -> float:
        """Bytes per second that all machines read together."""
        return self.gpus * self.constants.clips_per_gpu * self.constants.record_bytes / (self.step_ms * 1e-3) / GIGA

    @property
    def cache_tb(self) -> float:
        """The size of the shards."""
        return self.clips * self.constants.record_bytes / TERA

    @property
    def preprocess_hours(self) -> float:
        """Time of one machine to make the cache."""
        return (
            self.hours * self.constants.preprocess_cpu_s_per_hour / self.constants.preprocess_cores / SECONDS_PER_HOUR
        )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join([f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)])


def number(value: float) -> str:
    """Return the value with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def constants_table(constants: Constants, given: Collection[str]) -> str:
    """Return every constant with its value and source; `given` names those set by an option."""
    rows = []
    for each in fields(Constants):
        value = getattr(constants, each.name)
        rows.append(
            (
                f"`--{each.name.replace('_', '-')}`",
                f"{value:,g}",
                "given" if each.name in given else each.metadata["source"],
            )
        )
    return table(("constant", "value", "source"), rows)


def corpus_table(constants: Constants, hours: Sequence[float]) -> str:
    """Return sizes and times of a corpus before any GPU is used."""
    rows = []
    for each in hours:
        scale = Scale(constants, each, 1)
        shards = scale.clips / constants.records_per_shard
        rows.append(
            (
                number(each),
                number(scale.clips),
                f"{number(scale.cache_tb)} TB",
                f"{scale.cache_tb / constants.machine_disk_tb:.0%}",
                number(shards),
                f"{number(scale.clips * constants.listing_line_bytes / GIGA)} GB",
                f"{number(shards * constants.shard_entry_bytes / 1e6)} MB",
                f"{number(scale.clips * constants.preprocess_bytes_per_row / GIGA)} GB",
                f"{number(scale.preprocess_hours * constants.preprocess_cores)} h",
                f"{number(scale.preprocess_hours)} h",
            )
        )
    cores = f"preprocess, {constants.preprocess_cores:g} cores"
    return table(
        (
            "hours",
            "clips",
            "cache",
            "of a disk",
            "shards",
            "utterances.jsonl",
            "manifest",
            "preprocess, memory",
            "preprocess, one core",
            cores,
        ),
        rows,
    )


def steps_table(constants: Constants, hours: Sequence[float], gpus: Sequence[int]) -> str:
    """Return the parts of a step and the time of an epoch for each number of GPUs."""
    rows = []
    for count in gpus:
        scale = Scale(constants, hours[0], count)
        epochs = [f"{number(replace(scale, hours=each).epoch_hours)} h" for each in hours]
        rows.append(
            (
                str(count),
                number(count * constants.clips_per_gpu),
                *(
                    number(part)
                    for part in (scale.compute_ms, scale.reduce_ms, scale.disk_ms, scale.store_ms, scale.parse_ms)
                ),
                f"{scale.efficiency:.0%}",
                number(scale.read_gb_per_s),
                *epochs,
            )
        )
    head = (
        "GPUs",
        "batch",
        "compute, ms",
        "all-reduce, ms",
        "disk, ms",
        "store, ms",
        "parse, ms",
        "efficiency from disk",
        "all read, GB/s",
    )
    return table((*head, *(f"an epoch of {number(each)} h" for each in hours)), rows)


def limits_table(constants: Constants, gpus: Sequence[int]) -> str:
    """Return for each part at which number and which speed of GPUs it takes longer than computing."""
    few, many = (Scale(constants, 1.0, count) for count in (min(gpus), max(gpus)))
    rows = []
    for name in ("disk_ms", "store_ms", "parse_ms", "reduce_ms"):
        slow = [count for count in gpus if getattr(Scale(constants, 1.0, count), name) > few.compute_ms]
        first = f"{slow[0]} GPUs" if slow else f"not up to {max(gpus)}"
        speeds = [
            number(constants.clips_per_gpu / time * 1e3) if (time := getattr(scale, name)) else "never"
            for scale in (few, many)
        ]
        rows.append((name.removesuffix("_ms").replace("reduce", "all-reduce"), first, *speeds))
    head = (
        "part",
        "takes longer than computing from",
        f"{few.gpus} GPU: bottleneck above, clips/s",
        f"{many.gpus} GPUs: bottleneck above, clips/s of each",
    )
    now = number(constants.clips_per_gpu / few.compute_ms * 1e3)
    return f"{table(head, rows)}\n\nA GPU alone computes {now} clips/s here."


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, nargs="+", default=[1_000.0, 100_000.0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128, 256])
    parser.add_argument(
        "--preset", choices=PRESETS, default="base", help="whose arithmetic, parameters and batch stand for the network"
    )
    for each in fields(Constants):
        described = f"{each.metadata['source']}; {each.default:,g}".replace("%", "%%")
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float, help=described)
    arguments = vars(parser.parse_args())
    given = {each.name: arguments[each.name] for each in fields(Constants) if arguments[each.name] is not None}
    constants = replace(Constants(), **{**PRESETS[arguments["preset"]], **given})
    print(constants_table(constants, given))
    print(f"\n{corpus_table(constants, arguments['hours'])}")
    print(f"\n{steps_table(constants, arguments['hours'], arguments['gpus'])}")
    print(f"\n{limits_table(constants, arguments['gpus'])}")


if __name__ == "__main__":
    main()
