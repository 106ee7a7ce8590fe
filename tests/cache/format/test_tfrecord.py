"""TFRecord framing: TensorFlow reads the files, and every changed bit or cut is located."""

import io
import os
from pathlib import Path

import pytest
import xxhash

from tests.cache.corpora import write_records
from tests.damage import flip_bit
from xtts_pipeline.cache.format.tfrecord import FRAME_BYTES, RecordWriter, read_records, record_starts
from xtts_pipeline.errors import CacheError

PAYLOADS = [b"first", b"", b"third" * 1_000]


def test_records_come_back_and_count_size_and_checksum_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records"
    writer = write_records(path, PAYLOADS)
    data = path.read_bytes()
    assert list(read_records(path)) == PAYLOADS
    assert (writer.records, writer.bytes, writer.checksum) == (3, len(data), xxhash.xxh3_128_hexdigest(data))


def test_a_pipe_in_the_place_of_a_shard_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "records")
    for read in (read_records, record_starts):
        with pytest.raises(CacheError, match="cannot be read \\(no regular file\\)"):
            list(read(tmp_path / "records"))


def test_tensorflow_reads_the_same_records(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "records"
    write_records(path, PAYLOADS)
    assert list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == PAYLOADS


def test_tensorflow_writes_the_same_bytes(tmp_path: Path) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as theirs:
        for payload in PAYLOADS:
            theirs.write(payload)
    write_records(tmp_path / "ours", PAYLOADS)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_an_empty_file_holds_no_records(tmp_path: Path) -> None:
    (tmp_path / "records").write_bytes(b"")
    assert list(read_records(tmp_path / "records")) == []


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "records"
    write_records(path, [b"one", b"two"])
    for bit in range(8 * path.stat().st_size):
        flip_bit(path, *divmod(bit, 8))
        with pytest.raises(CacheError):
            list(read_records(path))
        flip_bit(path, *divmod(bit, 8))


def test_every_cut_but_one_between_records_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "records"
    write_records(path, [b"one", b"two"])
    data = path.read_bytes()
    for length in set(range(1, len(data))) - {FRAME_BYTES + 3}:
        path.write_bytes(data[:length])
        with pytest.raises(CacheError, match="record"):
            list(read_records(path))


def test_an_error_names_file_record_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "records"
    write_records(path, [b"one", b"two"])
    flip_bit(path, -5)
    with pytest.raises(CacheError, match=rf"records: record 1 at byte {FRAME_BYTES + 3}: the payload's checksum"):
        list(read_records(path))


def test_a_promised_length_takes_no_memory(tmp_path: Path) -> None:
    from xtts_pipeline.cache.format.tfrecord import masked_crc

    length = (1 << 62).to_bytes(8, "little")
    (tmp_path / "records").write_bytes(length + masked_crc(length).to_bytes(4, "little"))
    with pytest.raises(CacheError, match="the file ends before"):
        list(read_records(tmp_path / "records"))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read"):
        list(read_records(tmp_path / "absent"))


def test_a_full_disk_is_passed_on() -> None:
    class FullDisk(io.BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]  # noqa: ARG002
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        RecordWriter(FullDisk()).write(b"x")


def test_the_digest_of_a_read_is_that_of_the_file(tmp_path: Path) -> None:
    writer = write_records(tmp_path / "records", PAYLOADS)
    digest = xxhash.xxh3_128()
    assert list(read_records(tmp_path / "records", digest)) == PAYLOADS
    assert digest.hexdigest() == writer.checksum
