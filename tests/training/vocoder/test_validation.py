"""The validation of a vocoder."""

from types import SimpleNamespace

import numpy as np

from tests.training.tiny_run import NullMonitor
from tests.training.vocoder.test_step import config_with, signature_of
from xtts_pipeline.training.checkpoints.files import build_generator
from xtts_pipeline.training.distributed.strategy import SINGLE_DEVICE
from xtts_pipeline.training.vocoder.validation import VocoderValidation


def test_a_validation_clip_that_is_not_finite_is_no_sample() -> None:
    config = config_with("training.sample_sentences=1")
    clips = [("bad", np.full((20, 8), np.nan, np.float32)), ("good", np.full((16, 8), -3.0, np.float32))]
    source = SimpleNamespace(
        validation_clips=len(clips), validation_clip=lambda number: (*clips[number], np.zeros(0, np.float32))
    )
    validation = VocoderValidation(
        source,  # type: ignore[arg-type]
        config,
        build_generator(config),
        signature_of(config),
        NullMonitor(),  # type: ignore[arg-type]
        SINGLE_DEVICE,
    )
    numbers, samples = validation.synthesize_samples()
    assert np.isfinite(numbers["mel_distance"])
    assert [len(sample.wave) for sample in samples] == [15 * 128]
