from dataclasses import replace

import numpy as np
import pytest

from xtts_pipeline.cache.format.schema import Example, RecordSpec, bucket_of, pad_to, padded_values
from xtts_pipeline.text.tokens import PAD_ID

SPEC = RecordSpec(max_text_length=6, max_mel_frames=5, mel_bins=3, pad_value=-11.5)


def test_padding_is_silence_for_mels_and_the_pad_id_for_tokens() -> None:
    values = padded_values(Example("a", np.array([1, 7, 2], np.int32), np.zeros((2, 3), np.float32)), SPEC)
    assert values["tokens"].tolist() == [1, 7, 2, PAD_ID, PAD_ID, PAD_ID]
    np.testing.assert_array_equal(values["mel"][2:], np.full((3, 3), -11.5, np.float16))
    assert (values["text_length"], values["mel_length"]) == (3, 2)
    assert (values["tokens"].dtype, values["mel"].dtype) == (np.dtype("<i4"), np.dtype("<f2"))


def test_nothing_is_cut_to_fit() -> None:
    with pytest.raises(ValueError, match="length 7 is over the limit 6"):
        padded_values(Example("a", np.ones(7, np.int32), np.zeros((2, 3), np.float32)), SPEC)
    with pytest.raises(ValueError, match="length 6 is over the limit 5"):
        padded_values(Example("a", np.ones(3, np.int32), np.zeros((6, 3), np.float32)), SPEC)


def test_an_array_at_the_limit_is_unchanged() -> None:
    np.testing.assert_array_equal(pad_to(np.arange(4), 4, 9), np.arange(4))


def test_every_field_of_the_step_is_stored() -> None:
    stored = {field.name: field for field in SPEC.fields}
    assert [field.name for field in SPEC.batch_fields] == [
        "tokens",
        "text_length",
        "mel",
        "mel_length",
        "speaker",
        "language",
    ]
    assert all(stored[field.name].shape == field.shape for field in SPEC.batch_fields)
    assert stored["mel"].array_bytes == 5 * 3 * 2
    assert stored["tokens"].array_bytes == 6 * 4


def test_a_clip_belongs_to_the_first_bucket_that_holds_both_its_lengths() -> None:
    specs = [replace(SPEC, max_text_length=text, max_mel_frames=mel) for text, mel in ((4, 10), (8, 10), (8, 20))]
    lengths = {(4, 10): 0, (1, 1): 0, (5, 10): 1, (4, 11): 2, (8, 20): 2, (9, 1): None, (1, 21): None}
    assert {pair: bucket_of(specs, *pair) for pair in lengths} == lengths
