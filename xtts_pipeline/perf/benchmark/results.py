"""The results of a benchmark, figures of each variant and ratios between them, as JSON, as a table and as a picture.

No TensorFlow.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.errors import output_errors
from xtts_pipeline.plots import save_bars
from xtts_pipeline.system.atomic_files import atomic_write

# Formats of columns: 12.5%, 12,346 and 12,345.7.
SHARE, WHOLE, TENTHS = ".1%", ",.0f", ",.1f"
NO_GPU = "no GPU"
NOT_MEASURED = "-"

Figure = float | int | str | None

# More columns of figures are wider than a terminal of 80 columns.
MAX_COLUMNS = 5


@dataclass(frozen=True)
class Column:
    """A column of the table: its key among a variant's figures, its title and the format of its numbers."""

    key: str
    title: str
    form: str

    def cell(self, figures: Mapping[str, Figure]) -> str:
        """Return the figure's text, a dash if it was not measured."""
        value = figures.get(self.key)
        if value is None:
            return NOT_MEASURED
        return value if isinstance(value, str) else format(value, self.form)


@dataclass(frozen=True)
class Benchmark:
    """The figures of each variant by name, the ratios `ours/baseline`, and the settings of the measurement.

    `main_key` is the key of the figure in the ratios; more of it is better.
    """

    name: str
    columns: Sequence[Column]
    variants: Mapping[str, Mapping[str, Figure]]
    ratios: Mapping[str, float]
    settings: Mapping[str, object]
    main_key: str

    @property
    def main_title(self) -> str:
        """The title of the figure in the ratios."""
        return next(column.title for column in self.columns if column.key == self.main_key)

    def to_json(self) -> dict[str, object]:
        """Return the result for programs."""
        return {"variants": self.variants, "ratios": self.ratios, "settings": self.settings}

    def to_text(self) -> str:
        """Return the result for people: a Markdown table, with a row a figure where these are many, then the ratios."""
        table = [["variant", *(column.title for column in self.columns)]]
        table += [[name, *(column.cell(figures) for column in self.columns)] for name, figures in self.variants.items()]
        header, *rows = zip(*table, strict=True) if len(self.columns) > MAX_COLUMNS else table
        widths = [max(len(row[index]) for row in [header, *rows]) for index in range(len(header))]
        lines = [f"{self.name}: {', '.join(f'{key} {value}' for key, value in self.settings.items())}", ""]
        lines += [
            _line(header, widths),
            "|" + "|".join("-" * (width + 2) for width in widths) + "|",
            *(_line(row, widths) for row in rows),
        ]
        lines += ["", f"{self.main_title}, median of the ratios within a round"]
        lines += [f"  {name}: {ratio:.2f}" for name, ratio in self.ratios.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class BenchmarkReport:
    """The benchmarks of one run and the folder of their files."""

    benchmarks: Sequence[Benchmark]
    output: Path

    def to_json(self) -> dict[str, object]:
        """Return variants and ratios by name; several benchmarks prefix theirs, as in `step: eager`."""
        if len(self.benchmarks) == 1:
            return {**self.benchmarks[0].to_json(), "output": str(self.output)}
        return {
            "variants": dict(_prefixed((each.name, each.variants) for each in self.benchmarks)),
            "ratios": dict(_prefixed((each.name, each.ratios) for each in self.benchmarks)),
            "settings": {each.name: each.settings for each in self.benchmarks},
            "output": str(self.output),
        }

    def to_text(self) -> str:
        """Return every table and the paths of the files."""
        files = ", ".join(f"{each.name}.json, {each.name}.png" for each in self.benchmarks)
        return "\n\n".join([*(each.to_text() for each in self.benchmarks), f"written to {self.output}: {files}"])


def _prefixed(named: Iterable[tuple[str, Mapping[str, object]]]) -> Iterable[tuple[str, object]]:
    return ((f"{name}: {key}", value) for name, values in named for key, value in values.items())


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) + " |"


def save_benchmark(benchmark: Benchmark, output: Path) -> None:
    """Write the result as JSON and as a picture. Raises OutputError if one cannot be written."""
    path = output / f"{benchmark.name}.json"
    with output_errors(path, "choose another --output"), atomic_write(path) as file:
        file.write(json.dumps(benchmark.to_json(), indent=1, ensure_ascii=False).encode() + b"\n")
    values = {name: float(figures[benchmark.main_key] or 0.0) for name, figures in benchmark.variants.items()}
    machine = [str(benchmark.settings[key]) for key in ("processor", "device") if key in benchmark.settings]
    machine.append(f"{benchmark.settings['cores']} cores")
    title = f"xtts benchmark {benchmark.name}, ours in blue\n{', '.join(machine)}"
    ours = tuple({ratio.partition("/")[0] for ratio in benchmark.ratios})
    marked = [name for name in values if name.startswith(ours)]
    save_bars(output / f"{benchmark.name}.png", title, benchmark.main_title, values, marked)
