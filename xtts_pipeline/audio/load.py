"""Decode a sound file into one float32 wave at the configured sample rate, or reject it with a reason.

Used for clips of the cache and for reference voices. NumPy, libsndfile and soxr only; no TensorFlow.
"""

import errno
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
import soxr

from xtts_pipeline.audio.loudness import normalize_loudness
from xtts_pipeline.audio.wav_header import WAV_CODECS, WavHeader, read_wav_header
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.errors import TOO_LONG_REMEDY, AudioError, Reason
from xtts_pipeline.system.regular_files import open_regular_file, read_regular_file
from xtts_pipeline.system.stderr import silent_decoder

SAMPLE_RATES = range(1_000, 768_001)
MAX_CHANNELS = 64
MAX_FILE_BYTES = 1 << 29
BLOCK_SAMPLES = 1 << 16
RESAMPLING_QUALITY = "HQ"
INT16_SCALE = np.float32(1 / 32_768)
OGG_END_OF_STREAM = 4
OGG_HEADER_BYTES = 27  # up to the segment table; the last of them is its length
ID3_HEADER_BYTES = 10
EXPECTED = "expected WAV, FLAC, OGG or MP3"
CONVERT = "convert it to WAV or FLAC, such as by ffmpeg"
# In less speech `xtts segment` may find a right text as little as a wrong one.
SEGMENTED_SECONDS = 120
# As libsndfile names them. It knows more, but their truncation is not found, or their length is counted in blocks.
CODECS = frozenset(
    (
        *("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"),
        *("VORBIS", "OPUS", "MPEG_LAYER_III"),
    )
)
# What libsndfile says of a FLAC file whose header has no length, and which it then does not read.
UNKNOWN_SAMPLES = 2**63 - 1
# Floating-point files may exceed full scale, but not by 24 dB.
MAX_PEAK = 16.0
# A sample of at least this magnitude counts as clipped. 8-bit samples reach at most 127/128.
FULL_SCALE = 0.9999
FULL_SCALE_8_BIT = 127 / 128


LIBRARY_ERRORS = (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OverflowError)


class _SeekableBytes(io.BytesIO):
    """A file in memory that clamps seeks before its start.

    A broken file makes libsndfile seek there, and an exception in its callback would only be printed.
    """

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = (0, self.tell(), len(self.getbuffer()))[whence]
        return super().seek(max(0, base + offset))


@dataclass(frozen=True)
class DecodedClip:
    """A clip as its file holds it: float32 [samples], mono, before resampling.

    `clipped_share` is the share of samples at full scale, over all channels.
    """

    wave: np.ndarray
    sample_rate: int
    clipped_share: float


def decode_wave(source: bytes, audio: AudioConfig, limits: LimitsConfig, name: str) -> np.ndarray:
    """Return the clip as float32 [samples], mono, at `audio.sample_rate`, normalised as `audio` says.

    Channels are averaged, integers are scaled to [-1, 1), and other rates are resampled by soxr in high quality. The
    header is checked before memory is allocated for samples. `name` only appears in messages.

    Raises AudioError if the clip is unreadable, truncated, empty, not finite, out of range, too short, too long,
    silent, constant or clipped.
    """
    decoded = decode_clip(source, limits, name)
    wave = resample(decoded.wave, decoded.sample_rate, audio.sample_rate)
    if wave.size == 0:
        raise AudioError(Reason.AUDIO_TOO_SHORT, f"{name}: under one sample at audio.sample_rate={audio.sample_rate}")
    return normalize_loudness(wave, audio)


def decode_clip(source: bytes, limits: LimitsConfig, name: str) -> DecodedClip:
    """Return the checked clip, neither resampled nor normalised. Raises AudioError as `decode_wave` does."""
    try:
        decoded = _decode(source, limits)
        _check_sound(decoded, limits)
    except AudioError as error:
        raise AudioError(error.reason, f"{name}: {error.detail}") from None
    return decoded


def resample(wave: np.ndarray, sample_rate: int, to_rate: int) -> np.ndarray:
    """Return a wave, float32 [samples], at another rate, by soxr in high quality; as it is at an equal rate."""
    return wave if sample_rate == to_rate else soxr.resample(wave, sample_rate, to_rate, quality=RESAMPLING_QUALITY)


def load_wave(path: Path, audio: AudioConfig, limits: LimitsConfig) -> np.ndarray:
    """Read a sound file and decode it with `decode_wave`. Raises AudioError, also if there is no such file."""
    try:
        source = read_regular_file(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise AudioError(Reason.AUDIO_MISSING, f"{path}: no such file") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise AudioError(Reason.AUDIO_TOO_LONG, f"{path}: {error.strerror}; expected a clip") from None
        raise AudioError(Reason.AUDIO_UNREADABLE, f"{path}: cannot be read ({error.strerror})") from None
    return decode_wave(source, audio, limits, str(path))


def _decode(source: bytes, limits: LimitsConfig) -> DecodedClip:
    header = read_wav_header(source)
    if header is None:
        _check_container(io.BytesIO(source))
    else:
        _check_wav_header(header, limits)
        if header.is_plain_16_bit:
            return _decode_plain_wav(source, header)
    if source[:4] == b"OggS":
        _check_ogg_end(source)
    try:
        with silent_decoder(), soundfile.SoundFile(_SeekableBytes(source)) as file:
            _check_file(file)
            _check_header(file.frames, file.samplerate, file.channels, limits)
            return _decode_blocks(file)
    except LIBRARY_ERRORS as error:
        raise _undecodable(error) from None


def read_sound_length(path: Path) -> tuple[int, int]:
    """Return the samples and the sample rate in the header of a sound file. Raises AudioError if it cannot be read.

    libmpg123 may print a warning: callers read within `silent_decoder`, once for many files.
    """
    try:
        with open_regular_file(path) as source:
            _check_container(source)
        with soundfile.SoundFile(path) as file:
            _check_file(file)
            return file.frames, file.samplerate
    except (OSError, *LIBRARY_ERRORS) as error:
        raise _undecodable(error) from None


def _undecodable(error: Exception) -> AudioError:
    # Only libsndfile's own words: the rest holds an object's address, which must not reach the cache's bytes.
    problem = error.error_string if isinstance(error, soundfile.LibsndfileError) else " ".join(str(error).split())
    return AudioError(Reason.AUDIO_UNREADABLE, f"cannot be decoded ({problem}); {EXPECTED}")


def _check_container(file: BinaryIO) -> None:
    """Raise AudioError unless a file begins as WAV, FLAC, OGG or MP3, the last three behind ID3 tags if there are any.

    libsndfile opens any format that it knows, and prints on stdout for some.
    """
    start = file.read(12)
    if not start:
        raise AudioError(Reason.AUDIO_UNREADABLE, "the file has 0 bytes; expected a sound file")
    if start[:4] in (b"RIFF", b"RF64") and start[8:] == b"WAVE":
        return
    while start[:3] == b"ID3" and len(start) >= ID3_HEADER_BYTES:
        tag_bytes = sum((start[6 + place] & 0x7F) << 7 * (3 - place) for place in range(4))
        file.seek(ID3_HEADER_BYTES + tag_bytes - len(start), io.SEEK_CUR)
        start = file.read(12)
    # Without the bits of a layer, it is AAC.
    is_mpeg = start[:1] == b"\xff" and start[1:2] >= b"\xe0" and start[1] & 0x06 > 0
    if not is_mpeg and start[:4] not in (b"fLaC", b"OggS"):
        found = "an MP4 or M4A file" if start[4:8] == b"ftyp" else f"it begins with {ascii(start[:4])[1:]}"
        detail = f"cannot be decoded ({found}); {EXPECTED}: {CONVERT}"
        raise AudioError(Reason.AUDIO_UNREADABLE, detail)


def _check_file(file: soundfile.SoundFile) -> None:
    _check_codec(file.subtype)
    if file.frames == UNKNOWN_SAMPLES:
        found = "the header does not say its length, as in a FLAC file from a pipe"
        raise AudioError(Reason.AUDIO_UNREADABLE, f"{found}: {CONVERT}")


def _check_codec(codec: str) -> None:
    if codec not in CODECS:
        expected = "expected 8 to 32 bit, float, A-law, mu-law, Vorbis, Opus or MP3"
        raise AudioError(Reason.AUDIO_UNREADABLE, f"the codec {codec} is not supported; {expected}: {CONVERT}")


def _decode_plain_wav(source: bytes, header: WavHeader) -> DecodedClip:
    """Read 16-bit samples directly from the bytes: seven times faster than libsndfile's virtual files."""
    samples = np.frombuffer(
        source, "<i2", header.data_bytes // header.block_bytes * header.channels, header.data_offset
    )
    wave = samples.astype(np.float32)
    wave *= INT16_SCALE
    clipped = _clipped_samples(wave, FULL_SCALE) / len(wave)
    if header.channels > 1:
        wave = wave.reshape(-1, header.channels).mean(axis=1, dtype=np.float32)
    return DecodedClip(wave, header.sample_rate, clipped)


def decoded_blocks(file: soundfile.SoundFile, block_samples: int) -> Iterator[np.ndarray]:
    """Yield all samples in blocks, float32 [samples, channels]. Raises AudioError if the header promises more."""
    read = 0
    while len(block := file.read(block_samples, dtype="float32", always_2d=True)):
        read += len(block)
        yield block
    if read < file.frames:
        found = f"the header promises {file.frames} samples and {read} can be decoded"
        raise AudioError(Reason.AUDIO_UNREADABLE, f"truncated, {found}")


def _decode_blocks(file: soundfile.SoundFile) -> DecodedClip:
    """Mix the channels block by block, so that memory stays within twice the mono clip, whatever the channel count."""
    full_scale = FULL_SCALE_8_BIT if file.subtype in ("PCM_U8", "PCM_S8") else FULL_SCALE
    blocks, clipped, read = [], 0, 0
    for block in decoded_blocks(file, BLOCK_SAMPLES):
        clipped += _clipped_samples(block, full_scale)
        read += len(block)
        # Samples that are not finite are reported with their place, not warned about here.
        with np.errstate(invalid="ignore", over="ignore"):
            blocks.append(block[:, 0] if file.channels == 1 else block.mean(axis=1, dtype=np.float32))
    return DecodedClip(np.concatenate(blocks), file.samplerate, clipped / (read * file.channels))


def _clipped_samples(samples: np.ndarray, full_scale: float) -> int:
    # Most clips stay below full scale; min and max show that at a fraction of the cost of counting.
    if samples.max() < full_scale and samples.min() > -full_scale:
        return 0
    return int(np.count_nonzero(np.abs(samples) >= full_scale))


def _check_wav_header(header: WavHeader, limits: LimitsConfig) -> None:
    # Others store blocks of many samples, so bytes do not tell the length.
    _check_codec(WAV_CODECS.get(header.format_tag, f"0x{header.format_tag:04x}"))
    if header.promised_bytes == 0:
        raise AudioError(Reason.AUDIO_EMPTY, "the header promises no samples")
    if header.promised_seconds > limits.max_seconds:
        raise _too_long(header.promised_seconds, limits)
    if header.data_bytes < header.promised_bytes:
        found = f"the header promises {header.promised_bytes} bytes of samples and the file holds {header.data_bytes}"
        raise AudioError(Reason.AUDIO_UNREADABLE, f"truncated, {found}")
    if header.block_bytes:
        _check_header(header.data_bytes // header.block_bytes, header.sample_rate, header.channels, limits)


def _check_header(samples: int, sample_rate: int, channels: int, limits: LimitsConfig) -> None:
    if sample_rate not in SAMPLE_RATES:
        detail = f"a sample rate of {sample_rate} Hz; expected {SAMPLE_RATES.start} to {SAMPLE_RATES.stop - 1}"
        raise AudioError(Reason.AUDIO_UNREADABLE, detail)
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioError(Reason.AUDIO_UNREADABLE, f"{channels} channels; expected 1 to {MAX_CHANNELS}")
    if samples <= 0:
        raise AudioError(Reason.AUDIO_EMPTY, "the header promises no samples")
    check_seconds(samples / sample_rate, limits)


def check_seconds(seconds: float, limits: LimitsConfig) -> None:
    """Raise AudioError if a clip of this length by its header is under or over the limits."""
    if seconds > limits.max_seconds:
        raise _too_long(seconds, limits)
    if seconds < limits.min_seconds:
        detail = f"{seconds:.3f} s is under limits.min_seconds={limits.min_seconds:g}"
        raise AudioError(Reason.AUDIO_TOO_SHORT, detail)


def _too_long(seconds: float, limits: LimitsConfig) -> AudioError:
    found = f"{seconds:.1f} s by its header is over limits.max_seconds={limits.max_seconds:g}"
    command = " as xtts segment does" if seconds > SEGMENTED_SECONDS else ""
    return AudioError(Reason.AUDIO_TOO_LONG, f"{found}; {TOO_LONG_REMEDY}{command}")


def _check_ogg_end(source: bytes) -> None:
    """Raise AudioError if the last Ogg page is incomplete or not marked as the last.

    libsndfile decodes a truncated Ogg file without an error.
    """
    page = source.rfind(b"OggS")
    if len(source) < page + OGG_HEADER_BYTES or not source[page + 5] & OGG_END_OF_STREAM:
        detail = "truncated, its last Ogg page is not marked as the end of the stream"
        raise AudioError(Reason.AUDIO_UNREADABLE, detail)
    segments = source[page + OGG_HEADER_BYTES - 1]
    body = page + OGG_HEADER_BYTES + segments
    if len(source) < body or len(source) < body + sum(source[body - segments : body]):
        raise AudioError(Reason.AUDIO_UNREADABLE, "truncated within its last Ogg page")


def _check_sound(decoded: DecodedClip, limits: LimitsConfig) -> None:
    wave = decoded.wave
    peak = max(float(wave.max()), -float(wave.min()))
    if not np.isfinite(peak):
        first = int(np.flatnonzero(~np.isfinite(wave))[0])
        raise AudioError(Reason.AUDIO_NOT_FINITE, f"sample {first} is {wave[first]}; expected finite numbers")
    if peak > MAX_PEAK:
        first = int(np.abs(wave).argmax())
        detail = f"sample {first} is {wave[first]:.3g}; expected at most {MAX_PEAK:g}, where full scale is 1"
        raise AudioError(Reason.AUDIO_OUT_OF_RANGE, detail)
    peak_db = 20 * np.log10(peak) if peak > 0 else -np.inf
    if peak_db < limits.min_peak_db:
        found = f"its peak of {peak_db:.1f} dB" if peak > 0 else "silence, which"
        raise AudioError(Reason.AUDIO_SILENT, f"{found} is under limits.min_peak_db={limits.min_peak_db:g}")
    if float(wave.max()) - float(wave.min()) < 10 ** (limits.min_peak_db / 20):
        raise AudioError(Reason.AUDIO_CONSTANT, f"every sample is about {wave[0]:.3g}; expected sound")
    if decoded.clipped_share > limits.max_clipped_share:
        share = f"{decoded.clipped_share:.1%} of its samples are at full scale"
        detail = f"{share}, over limits.max_clipped_share={limits.max_clipped_share:g}"
        raise AudioError(Reason.AUDIO_CLIPPED, detail)
