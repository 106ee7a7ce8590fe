"""Records: decoding inverts encoding, TensorFlow gives the same bytes, invalid payloads are refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts_pipeline.cache.format.example import decode_example, encode_example
from xtts_pipeline.cache.format.schema import Example, RecordSpec
from xtts_pipeline.errors import CacheError

SPEC = RecordSpec(max_text_length=6, max_mel_frames=5, mel_bins=3, pad_value=float(np.log(1e-5)))


def make_example(tokens: int = 4, frames: int = 2, utterance_id: str = "clip-1") -> Example:
    mel = np.linspace(-11.5, 2.0, frames * SPEC.mel_bins, dtype=np.float32).reshape(frames, SPEC.mel_bins)
    return Example(utterance_id, np.arange(1, tokens + 1, dtype=np.int32), mel, speaker=7, language=2)


@given(st.integers(0, 6), st.integers(0, 5), st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=30, deadline=None)
def test_features_come_back_padded_with_silence(tokens: int, frames: int, utterance_id: str) -> None:
    example = make_example(tokens, frames, utterance_id)
    decoded = decode_example(encode_example(example, SPEC), SPEC)
    assert decoded["id"] == utterance_id
    assert (decoded["text_length"], decoded["mel_length"], decoded["speaker"], decoded["language"]) == (
        tokens,
        frames,
        7,
        2,
    )
    np.testing.assert_array_equal(decoded["tokens"][:tokens], example.tokens)
    np.testing.assert_array_equal(decoded["tokens"][tokens:], 0)
    np.testing.assert_array_equal(decoded["mel"][:frames], example.mel.astype(np.float16))
    np.testing.assert_array_equal(decoded["mel"][frames:], np.float16(SPEC.pad_value))


# Two values of the mel fill a float32; with an odd number of bins the mel is bytes.
@pytest.mark.parametrize("bins", [3, 4])
def test_the_bytes_are_those_of_tensorflow_and_both_live_in_one_process(bins: int) -> None:
    import tensorflow as tf

    spec = replace(SPEC, mel_bins=bins)
    examples = [make_example(), make_example(0, 0, ""), make_example(utterance_id="\u00e9" * 9_000)]
    examples += [replace(make_example(), speaker=speaker) for speaker in (-1, 0, 127, 128, 2**31 - 1)]
    for example in (replace(each, mel=np.resize(each.mel, (len(each.mel), bins))) for each in examples):
        payload = encode_example(example, spec)
        message = tf.train.Example.FromString(payload)
        assert message.features.feature["id"].bytes_list.value[0] == example.id.encode()
        mel = message.features.feature["mel"]
        stored = mel.bytes_list.value[0] if bins == 3 else np.array(mel.float_list.value, "<f4").tobytes()
        assert stored == decode_example(payload, spec)["mel"].tobytes()
        assert message.SerializeToString(deterministic=True) == payload


def test_the_same_features_give_the_same_bytes() -> None:
    assert encode_example(make_example(), SPEC) == encode_example(make_example(), SPEC)


def test_a_record_of_another_shape_is_refused() -> None:
    payload = encode_example(make_example(), SPEC)
    with pytest.raises(CacheError, match="tokens holds 24 bytes, expected 28"):
        decode_example(payload, RecordSpec(7, 5, 3, SPEC.pad_value))


def test_missing_surplus_and_mistyped_features_are_refused() -> None:
    import tensorflow as tf

    whole = tf.train.Example.FromString(encode_example(make_example(), SPEC))
    missing, surplus, mistyped, doubled = (tf.train.Example.FromString(whole.SerializeToString()) for _ in range(4))
    del missing.features.feature["speaker"]
    surplus.features.feature["pitch"].int64_list.value.append(1)
    mistyped.features.feature["speaker"].bytes_list.value.append(b"1")
    doubled.features.feature["speaker"].int64_list.value.append(1)
    for message, problem in ((missing, "speaker"), (surplus, "pitch"), (mistyped, "bytes_list"), (doubled, "2 values")):
        with pytest.raises(CacheError, match=problem):
            decode_example(message.SerializeToString(), SPEC)


def test_a_mel_of_another_size_or_kind_is_refused() -> None:
    import tensorflow as tf

    spec = replace(SPEC, mel_bins=4)
    whole = tf.train.Example.FromString(encode_example(replace(make_example(), mel=np.zeros((2, 4), np.float32)), spec))
    short, none, mistyped = (tf.train.Example.FromString(whole.SerializeToString()) for _ in range(3))
    short.features.feature["mel"].float_list.value.pop()
    none.features.feature["mel"].float_list.Clear()
    mistyped.features.feature["mel"].bytes_list.value.append(bytes(40))
    problems = (
        "mel holds 36 bytes, expected 40",
        "mel holds 0 bytes, expected 40",
        "mel is a bytes_list, expected a float_list",
    )
    for message, problem in zip((short, none, mistyped), problems, strict=True):
        with pytest.raises(CacheError, match=problem):
            decode_example(message.SerializeToString(), spec)


@pytest.mark.parametrize("payload", [b"", b"\xff\xff", b"not a record at all"])
def test_bytes_that_are_no_example_are_refused(payload: bytes) -> None:
    with pytest.raises(CacheError):
        decode_example(payload, SPEC)
