"""What the trial of drawn inputs draws: broken settings, corpora, sounds, caches, runs, texts and option values.

Each draw is a command over a broken copy of a sound original. It follows from its number alone.
"""

import io
import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import soundfile

from tests.cache.corpora import CONFIG, SAMPLE_RATE, SETTINGS, build, write_corpus
from tests.cli.test_main import COMMANDS
from tests.config.test_bounds import DRAWN as DRAWN_SETTINGS
from tests.config.test_bounds import KEYS
from xtts_pipeline.config.load import dump_config, load_config, preset_names
from xtts_pipeline.system.sealed_json import seal_json, unseal_json

WIDTHS = ("feedforward_width", "encoder_layers", "decoder_layers", "flow_layers")
TINY_RUN = [f"--set=model.{key}=1" for key in (*WIDTHS, "voice_latents")]
TINY_RUN += [f"--set=training.{key}=2" for key in ("batch_size", "save_every", "evaluate_every", "log_every")]
TINY_RUN += ["--set=model.width=2", "--set=model.heads=1", "--set=training.jit_compile=false"]
LAYOUTS = {
    "ljspeech": {"metadata.csv": "a|x|One, two.\nb|x|Three.\nc|x|Four.\n", "wavs/{}.wav": None},
    "vctk": {"txt/p1/p1_{}.txt": "One, two.", "wav48/p1/p1_{}.wav": None},
    "libritts": {"train-clean/1/2/{}.normalized.txt": "One, two.", "train-clean/1/2/{}.wav": None},
    "common_voice": {
        "train.tsv": "client_id\tpath\tsentence\tlocale\nx\ta.wav\tOne.\ten\ny\tb.wav\tTwo.\tfa\nx\tc.wav\tSix.\ten\n",
        "clips/{}.wav": None,
    },
    "coqui": {
        "metadata_train.csv": "audio_file|text|speaker_name\nw/a.wav|One.|x\nw/b.wav|Two.|y\nw/c.wav|Six.|y\n",
        "w/{}.wav": None,
    },
    "table": {
        "manifest.csv": 'id,audio,text,speaker\n1,w/a.wav,"One, two.",x\n2,w/b.wav,Two.,y\n3,w/c.wav,Six.,y\n',
        "w/{}.wav": None,
    },
    "lines": {
        "manifest.jsonl": "".join(
            json.dumps({"audio": f"w/{name}.wav", "text": "One.", "speaker": "x"}) + "\n" for name in "abc"
        ),
        "w/{}.wav": None,
    },
}
SOUND_FORMATS = [("WAV", subtype) for subtype in ("PCM_16", "PCM_24", "FLOAT", "PCM_U8", "ULAW", "IMA_ADPCM", "GSM610")]
SOUND_FORMATS += [("WAVEX", "PCM_16"), ("RF64", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS")]
SOUND_FORMATS += [("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("AU", "PCM_16"), ("W64", "PCM_16"), ("CAF", "PCM_16")]
VALUES: list[Any] = [None, True, False, -1, 0, 1, 2, 2**31, 2**63, 10**30, -(10**30), 0.5, -0.0, 1e308, 5e-324]
VALUES += ["", " ", "a", "../../x", "/etc/passwd", "a\nb", "a\x00b", "\u2028", "\x1b[31m", "\ud800", "a" * 70_000]
VALUES += [[], [[]], {}, {"a": 1}, [0] * 1_000, "NaN", "1e5", "step-00000001", "😀", "\u202eabc", "é" * 200]
TOKENS = [
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\x0b",
    b"\x0c",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
]
TOKENS += [
    b'"',
    b"|",
    b"||",
    b"\t",
    b",",
    b"{",
    b"}",
    b"[",
    b"\\",
    b"../",
    b"\x1b[2J",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
]
TOKENS += [
    b"NaN",
    b"Infinity",
    b"9" * 5_000,
    b"-1",
    b"1e999",
    b"[" * 3_000,
    b"&a ",
    b"*a",
    b"!!python/name:os.system ",
    b"?",
]
OPTION_VALUES = [
    "",
    " ",
    "0",
    "-1",
    "1",
    "2",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "9" * 5_000,
    "2147483648",
    "true",
    "a",
]
OPTION_VALUES += ["100%", "101%", "-1%", "nan%", "../x", "/dev/zero", "/dev/full", "gs://", "gs:///a"]
OPTION_VALUES += [
    "file:///proc/x",
    "hdfs://a/b",
    "\x1b[31m",
    "a\nb",
    "\udcff",
    "é" * 300,
    "a" * 5_000,
    "=",
    "a=b",
    "~",
    ".",
    "/",
]
HUGE_BYTES = 200 << 20


def corrupt_bytes(content: bytes, draws: random.Random) -> bytes:
    """Return the content with one to four changes, which gather at its start."""
    data = bytearray(content)
    for _ in range(draws.randint(1, 4)):
        place = draws.randrange(len(data) + 1) if draws.random() < 0.5 else min(draws.randrange(128), len(data))
        change = draws.randrange(6)
        if change == 0 and place < len(data):
            data[place] ^= 1 << draws.randrange(8)
        elif change == 1:
            data[place : place + draws.choice([1, 2, 4, 8])] = draws.randbytes(draws.choice([1, 2, 4, 8]))
        elif change == 2:
            data[place : place + draws.choice([0, 0, 1, 4])] = draws.choice(TOKENS)
        elif change == 3:
            data[place : place + 4] = draws.choice([b"\x00" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80"])
        elif change == 4:
            del data[place : place + draws.choice([1, 16, len(data)])]
        else:
            data[place:place] = data[place : place + draws.choice([1, 64, 4_096])]
    return bytes(data)


def corrupt_json(content: Any, draws: random.Random) -> Any:
    """Return the content with one node of its tree replaced, removed, renamed or added."""
    place, parents = content, []
    while isinstance(place, dict | list) and place and (not parents or draws.random() < 0.8):
        key = draws.choice(list(place) if isinstance(place, dict) else range(len(place)))
        parents.append((place, key))
        place = place[key]
    if not parents:
        return draws.choice(VALUES)
    parent, key = parents[-1]
    change = draws.random()
    if change < 0.7:
        parent[key] = draws.choice(VALUES)
    elif change < 0.85:
        del parent[key]
    elif isinstance(parent, dict):
        parent[draws.choice(["a", "", str(key).upper(), "checksum"])] = parent[key]
    else:
        parent.append(parent[key])
    return content


def corrupt_document(content: bytes, draws: random.Random) -> bytes:
    """Return a JSON document or JSON lines with a changed node, sealed anew where it was sealed; else changed bytes."""
    if draws.random() < 0.35:
        return corrupt_bytes(content, draws)
    try:
        return seal_json(corrupt_json(unseal_json(content), draws))
    except (ValueError, TypeError, AttributeError):
        pass
    try:
        return json.dumps(corrupt_json(json.loads(content), draws)).encode()
    except ValueError:
        pass
    lines = content.splitlines(keepends=True)
    if not lines or content[:1] != b"{":
        return corrupt_bytes(content, draws)
    place = draws.randrange(len(lines))
    lines[place] = corrupt_document(lines[place], draws).rstrip(b"\n") + b"\n"
    return b"".join(lines)


def replace_file(path: Path, draws: random.Random) -> None:
    """Put something else in the place of a file: a pipe, a folder, a device, a link, nothing."""
    path.unlink(missing_ok=True)
    kind = draws.randrange(8)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.touch()
    elif kind < 7:
        path.symlink_to([path.name, "/dev/zero", "/dev/full", "/nowhere"][kind - 3])


def corrupt(path: Path, draws: random.Random) -> None:
    """Break one file."""
    if draws.random() < 0.08 or not path.is_file():
        replace_file(path, draws)
        return
    change = corrupt_document if path.suffix in (".json", ".jsonl") else corrupt_bytes
    path.write_bytes(change(path.read_bytes(), draws))


def make_huge(path: Path, draws: random.Random) -> None:
    """Make a file of 200 MB: zeros, empty lines, one line, short rows, or its own content again and again."""
    own = path.read_bytes() if path.is_file() else b""
    if draws.random() < 0.3:
        os.truncate(path, HUGE_BYTES)
        return
    piece = draws.choice([b"\n", b"a", b"a|b|c\n", b"[", b'{"audio":"a","text":"b"}\n', own or b"x", b"a: 1\n"])
    block = piece * (-(-(1 << 20) // len(piece)))
    with path.open("ab" if draws.random() < 0.5 else "wb") as file:
        while file.tell() < HUGE_BYTES:
            file.write(block)


def sound(draws: random.Random) -> bytes:
    """Return a mutated sound file of a drawn format."""
    kind, subtype = draws.choice(SOUND_FORMATS)
    rate = 48_000 if subtype == "OPUS" else draws.choice([SAMPLE_RATE, 16_000, 44_100])
    wave = 0.5 * np.sin(np.arange(int(0.6 * rate)) * math.tau * 440 / rate)
    target = io.BytesIO()
    soundfile.write(
        target,
        wave if subtype == "GSM610" or draws.random() < 0.7 else np.stack([wave, wave], 1),
        rate,
        subtype,
        format=kind,
    )
    return target.getvalue() if draws.random() < 0.1 else corrupt_bytes(target.getvalue(), draws)


class Draw:
    """One draw: its random numbers, and a folder of its own for copies of the originals."""

    def __init__(self, name: str, originals: Path, folder: Path) -> None:
        self.has_tensorflow = name.startswith("tensorflow")
        self.draws = random.Random(name)  # noqa: S311 (draws inputs, keeps no secret)
        self.originals, self.folder = originals, folder

    def copy(self, name: str) -> Path:
        """Return a copy of an original file or folder."""
        source, target = self.originals / name, self.folder / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        return target

    def break_files(self, folder: Path, pattern: str = "*", most: int = 2) -> None:
        """Break one or more of the files under a folder."""
        files = sorted(path for path in folder.rglob(pattern) if path.is_file() and path.name != ".lock")
        for path in self.draws.sample(files, min(self.draws.randint(1, most), len(files))):
            corrupt(path, self.draws)

    def overrides(self, section: str = "") -> Iterator[str]:
        """Yield `--set` options of drawn settings at and beyond their bounds."""
        for key in self.draws.sample([key for key in KEYS if key.startswith(section)], self.draws.choice([1, 1, 2, 3])):
            yield from ("--set", f"{key}={self.draws.choice(DRAWN_SETTINGS[key])}")

    def reading(self, corpus: Path, *arguments: str) -> list[str]:
        """Return a command that reads a corpus."""
        command = self.draws.choice([["preprocess"], ["preprocess", "--dry-run"], ["stats"]])
        cache = [] if command == ["stats"] else ["--cache", str(self.folder / "new")]
        return [*command, "--data", str(corpus), *cache, *SETTINGS, *arguments]


def settings_file(draw: Draw) -> list[str]:
    """Draw a broken YAML file for `config` and `preprocess`."""
    path = draw.copy(draw.draws.choice(["config.yaml", "old.yaml"]))
    corrupt(path, draw.draws)
    corpus, cache = str(draw.originals / "ljspeech"), str(draw.folder / "new")
    command = ["config", draw.draws.choice(["show", "check", "migrate"]), str(path)]
    dry_run = ["preprocess", "--data", corpus, "--cache", cache, "--dry-run", "--config", str(path)]
    return command if draw.draws.random() < 0.7 else dry_run


def setting(draw: Draw) -> list[str]:
    """Draw settings at and beyond their bounds."""
    if draw.draws.random() < 0.2:
        return ["config", "check", draw.draws.choice(preset_names()), *draw.overrides()]
    return draw.reading(draw.originals / "ljspeech", *draw.overrides())


def metadata(draw: Draw) -> list[str]:
    """Draw the broken tables and transcripts of a layout."""
    name = draw.draws.choice(sorted(LAYOUTS))
    corpus = draw.copy(name)
    patterns = [file.replace("{}", "*").rpartition("/")[2] for file, text in LAYOUTS[name].items() if text is not None]
    draw.break_files(corpus, patterns[0])
    return draw.reading(corpus)


def sounds(draw: Draw) -> list[str]:
    """Draw the broken sounds of a corpus."""
    corpus = draw.copy("ljspeech")
    for name in "abc":
        (corpus / "wavs" / f"{name}.wav").write_bytes(sound(draw.draws))
    return draw.reading(corpus)


def cache(draw: Draw) -> list[str]:
    """Draw broken files of a cache, and a command that reads it."""
    folder = draw.copy("cache")
    draw.break_files(folder, draw.draws.choice(["*", "*.json", "*.jsonl", "manifest.json", "*.tfrecord"]))
    rebuild = ["preprocess", "--data", str(draw.originals / "corpus"), "--cache", str(folder), *SETTINGS]
    commands = [
        ["verify-cache", "--cache", str(folder), "--jobs", "1", "--level", level] for level in ("quick", "full")
    ]
    commands += [
        ["verify-cache", "--cache", str(folder), "--level", "deep", "--data", str(draw.originals / "corpus")],
        ["stats", "--cache", str(folder)],
        ["inspect", "--cache", str(folder), "--id", "clip-003", "--output", str(draw.folder / "inspect")],
        ["cache", "push", str(folder), str(draw.folder / "pushed")],
        rebuild,
        [*rebuild, "--dry-run"],
    ]
    return draw.draws.choice(commands)


# Would begin the whole job with valid options.
NOT_DRAWN = {"demo", "benchmark preprocess", "diagnose retracing"}
# These import TensorFlow before they look for their run.
AT_ONCE = {"synthesize", "evaluate", "export"}


def option(draw: Draw) -> list[str]:
    """Draw option values for a command that finds no cache, run or corpus."""
    known = [name for name, each in COMMANDS.items() if name not in NOT_DRAWN and not isinstance(each, click.Group)]
    name = draw.draws.choice([name for name in known if (name in AT_ONCE) == draw.has_tensorflow])
    command, arguments = COMMANDS[name], name.split()
    options = [each for each in command.params if isinstance(each, click.Option)]
    missing = str(draw.folder / "missing")
    for each in options:
        if each.name in ("cache", "data", "run", "output") and (each.required or draw.draws.random() < 0.5):
            arguments += [each.opts[0], missing]
    for each in draw.draws.sample(options, min(3, len(options))):
        arguments += [each.opts[0], *([] if each.is_flag else [draw.draws.choice(OPTION_VALUES)])]
    count = sum(isinstance(each, click.Argument) for each in command.params)
    return arguments + [draw.draws.choice([missing, *OPTION_VALUES]) for _ in range(count)]


def huge(draw: Draw) -> list[str]:
    """Draw a file of 200 MB in the place of one that a command reads."""
    target = draw.draws.choice([*sorted(LAYOUTS), "cache", "config.yaml", "sound"])
    if target == "config.yaml":
        make_huge(draw.copy(target), draw.draws)
        return ["config", "check", str(draw.folder / target)]
    if target == "cache":
        folder = draw.copy("cache")
        make_huge(draw.draws.choice(sorted(path for path in folder.rglob("*") if path.is_file())), draw.draws)
        return draw.draws.choice([["verify-cache", "--cache", str(folder)], ["stats", "--cache", str(folder)]])
    corpus = draw.copy("ljspeech" if target == "sound" else target)
    files = [path for path in sorted(corpus.rglob("*")) if path.is_file()]
    make_huge(draw.draws.choice([path for path in files if (path.suffix == ".wav") == (target == "sound")]), draw.draws)
    return draw.reading(corpus)


def run_files(draw: Draw) -> list[str]:
    """Draw broken files of a run, and a command that reads them."""
    trained = draw.copy("run")
    # Without the older checkpoints, which a command may fall back on.
    for older in sorted((trained / "checkpoints").glob("step-*"))[: -draw.draws.randint(1, 2)]:
        shutil.rmtree(older)
    draw.break_files(
        trained, draw.draws.choice(["*", "state.json", "*.json", "*.jsonl", "*.safetensors", "config.yaml"])
    )
    output = str(draw.folder / "out")
    resume = ["train", "--cache", str(draw.originals / "cache"), "--resume", "--output", str(trained)]
    resume += ["--steps", draw.draws.choice(["4", "5"])]
    commands = [["synthesize", "--run", str(trained), "--text", "is", "--output", f"{output}.wav"], resume]
    commands += [["evaluate", "--run", str(trained), "--cache", str(draw.originals / "cache"), "--output", output]]
    return draw.draws.choice(commands)


def spoken(draw: Draw) -> list[str]:
    """Draw texts, files of texts and reference sounds for `synthesize`."""
    command = ["synthesize", "--run", str(draw.originals / "run"), "--output", str(draw.folder / "out")]
    kind = draw.draws.randrange(4)
    if kind == 0:
        text = (
            corrupt_bytes(b"this is clip 12, it is.", draw.draws)
            .replace(b"\x00", b"")
            .decode("utf-8", "surrogateescape")
        )
        return [*command, "--text", text[:200]]
    if kind == 1:
        path = draw.folder / "lines.txt"
        path.write_bytes(b"this is clip\nit is 2\n")
        corrupt(path, draw.draws)
        return [*command, "--text-file", str(path)]
    if kind == 2:
        return [*command, "--text", "is", *draw.overrides("synthesis.")]
    path = draw.folder / "reference.wav"
    path.write_bytes(sound(draw.draws))
    if draw.draws.random() < 0.2:
        replace_file(path, draw.draws)
    return [*command, "--text", "is", "--reference", str(path)]


# Each stream is drawn by processes of its own: how often each kind is drawn in it.
STREAMS: dict[str, dict[Callable[[Draw], list[str]], int]] = {
    "plain": {settings_file: 15, setting: 20, metadata: 22, sounds: 20, cache: 25, option: 15},
    "tensorflow": {run_files: 6, spoken: 3, option: 1},
    "huge": {huge: 1},
}


def draw_command(stream: str, number: int, originals: Path, folder: Path) -> tuple[str, list[str]]:
    """Return the kind and the command of a draw, after its files were written to the folder."""
    draw = Draw(f"{stream} {number}", originals, folder)
    [kind] = draw.draws.choices(list(STREAMS[stream]), list(STREAMS[stream].values()))
    return kind.__name__, kind(draw)


def make_originals(folder: Path, *, with_run: bool = False) -> None:
    """Write the sound originals that are copied and broken: corpora, a cache, settings and a run."""
    for name, files in LAYOUTS.items():
        for file, text in files.items():
            for stem in "abc" if "{}" in file else [""]:
                path = folder / name / file.format(stem)
                path.parent.mkdir(parents=True, exist_ok=True)
                if text is not None:
                    path.write_text(text, encoding="utf-8")
                    continue
                wave = 0.5 * np.sin(np.arange(int(0.4 * SAMPLE_RATE)) * math.tau * 0.05)
                soundfile.write(path, wave, SAMPLE_RATE, "PCM_16")
    build(write_corpus(folder / "corpus", 24), folder / "cache")
    (folder / "config.yaml").write_text(dump_config(load_config(overrides=CONFIG)), encoding="utf-8")
    old = "data:\n  sample_rate: 22050\n  hop_length: 256\n  num_workers: 4\nmodel:\n  text_encoder_dim: 256\n"
    (folder / "old.yaml").write_text(f"{old}training:\n  learning_rate: 1e-4\n  scheduler: noam\n", encoding="utf-8")
    if with_run:
        train = ["train", "--cache", str(folder / "cache"), "--output", str(folder / "run"), "--steps", "4", *TINY_RUN]
        subprocess.run([sys.executable, "-m", "xtts_pipeline", *train], check=True, capture_output=True)
