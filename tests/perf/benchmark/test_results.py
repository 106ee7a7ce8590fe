"""Ratios within rounds, tables and files of figures."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from xtts_pipeline.perf.benchmark.results import SHARE, WHOLE, Benchmark, BenchmarkReport, Column, save_benchmark
from xtts_pipeline.perf.timing import in_turns, paired_ratios

COLUMNS = (Column("rate", "clips/s", WHOLE), Column("wait", "data wait", SHARE), Column("device", "device", SHARE))


def benchmark(name: str = "input") -> Benchmark:
    variants = {
        "ours": {"rate": 1200.0, "wait": 0.015, "device": "no GPU"},
        "npy": {"rate": 400.0, "wait": None, "device": 0.5},
    }
    return Benchmark(name, COLUMNS, variants, {"ours/npy": 3.0}, {"processor": "an old processor", "cores": 2}, "rate")


def test_every_other_round_goes_backwards():
    order: list[str] = []
    found = in_turns({name: lambda name=name: order.append(name) or len(order) for name in "abc"}, 2, lambda _: None)

    assert order == ["a", "b", "c", "c", "b", "a"]
    assert found == {"a": [1, 6], "b": [2, 5], "c": [3, 4]}


def test_a_ratio_is_the_median_of_the_ratios_within_a_round():
    # The machine was half as fast in the second round, which concerns no ratio, and something else ran in the third.
    rates = {"ours": [100.0, 50.0, 90.0], "baseline": [50.0, 25.0, 10.0], "other": [100.0, 50.0, 90.0]}

    assert paired_ratios(rates, ["ours"]) == {"ours/baseline": 2.0, "ours/other": 1.0}


def test_two_of_ours_are_compared_once():
    rates = {"baseline": [1.0], "fixed": [2.0], "buckets": [3.0]}

    assert paired_ratios(rates, ["buckets", "fixed"]) == {
        "buckets/baseline": 3.0,
        "buckets/fixed": 1.5,
        "fixed/baseline": 2.0,
    }


def test_the_table_shows_words_and_what_was_not_measured():
    text = benchmark().to_text()

    assert "| ours    | 1,200   | 1.5%      | no GPU |" in text
    assert "| npy     | 400     | -         | 50.0%  |" in text
    assert "ours/npy: 3.00" in text


def test_many_figures_have_a_row_each():
    columns = [Column(f"figure {number}", f"figure {number}", WHOLE) for number in range(10)]
    variants = {name: {column.key: 1_000_000.0 for column in columns} for name in ("fixed", "XLA buckets")}
    lines = Benchmark("step", columns, variants, {}, {}, "figure 0").to_text().splitlines()

    assert "| variant  | fixed     | XLA buckets |" in lines
    assert "| figure 9 | 1,000,000 | 1,000,000   |" in lines


def test_one_benchmark_has_its_variants_at_the_top_of_its_json():
    assert BenchmarkReport([benchmark()], Path("out")).to_json() == {**benchmark().to_json(), "output": "out"}


def test_several_benchmarks_have_the_same_shape_of_json_with_their_names_before():
    found = BenchmarkReport([benchmark("input"), benchmark("step")], Path("out")).to_json()

    assert list(found["variants"]) == ["input: ours", "input: npy", "step: ours", "step: npy"]
    assert found["ratios"] == {"input: ours/npy": 3.0, "step: ours/npy": 3.0}


def test_files_hold_the_figures_and_a_picture_that_marks_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *args, **kwargs: (drawn.append(figure), save(figure, *args, **kwargs))
    )
    save_benchmark(benchmark(), tmp_path)

    axes = drawn[0].axes[0]
    ours, other = axes.patches
    assert ours.get_facecolor() != other.get_facecolor()
    assert axes.get_title() == "xtts benchmark input, ours in blue\nan old processor, 2 cores"

    assert json.loads((tmp_path / "input.json").read_text(encoding="utf-8")) == benchmark().to_json()
    assert (tmp_path / "input.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("value", [0.0, 12345.6])
def test_numbers_have_their_thousands_apart(value: float):
    assert Column("rate", "", WHOLE).cell({"rate": value}) == f"{value:,.0f}"
