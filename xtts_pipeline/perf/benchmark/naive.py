"""The baseline of `xtts preprocess`: one unchecked joblib task a shard, soundfile, librosa, tf.io.TFRecordWriter.

Runs in another process: `python -m xtts_pipeline.perf.benchmark.naive CORPUS OUTPUT JOBS CONFIG`.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.perf.benchmark.librosa_mel import librosa_log_mel

SHARD_CLIPS = 256


def write_shard(rows: Sequence[str], corpus: Path, path: Path, config: Config) -> None:
    """Write the rows of an LJSpeech corpus as one TFRecord file of padded float16 mels."""
    # By name and in the worker alone: in the parent process its import would count against the baseline.
    tf = importlib.import_module("tensorflow")

    def raw(array: np.ndarray) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()]))

    audio, limits = config.audio, config.limits
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            name, _, text = row.split("|", 2)
            log_mel = librosa_log_mel(corpus / "wavs" / f"{name}.wav", audio).astype(np.float16)[
                : limits.max_mel_frames
            ]
            padded = np.full((limits.max_mel_frames, audio.mel_bins), np.log(audio.floor), np.float16)
            padded[: len(log_mel)] = log_mel
            tokens = np.zeros(limits.max_text_length, np.int32)
            symbols = np.frombuffer(text.encode("utf-32-le"), np.int32)[: limits.max_text_length]
            tokens[: len(symbols)] = symbols
            feature = {"mel": raw(padded), "tokens": raw(tokens)}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def main() -> None:
    """Preprocess a whole corpus."""
    corpus, output, jobs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    config = load_config([sys.argv[4]], [])
    rows = (corpus / "metadata.csv").read_text(encoding="utf-8").splitlines()
    output.mkdir(parents=True)
    size = min(SHARD_CLIPS, -(-len(rows) // jobs))
    shards = [rows[start : start + size] for start in range(0, len(rows), size)]
    tasks = (
        joblib.delayed(write_shard)(shard, corpus, output / f"{number}.tfrecord", config)
        for number, shard in enumerate(shards)
    )
    joblib.Parallel(n_jobs=jobs)(tasks)


if __name__ == "__main__":
    main()
