"""Decode a sound file into one float32 wave at the configured sample rate, or reject it with a reason.

Used for clips of the cache and for reference voices. NumPy, libsndfile and soxr only; no TensorFlow.
"""

import errno
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from xtts_pipeline.audio.loudness import normalize_loudness
from xtts_pipeline.audio.wav_header import WavHeader, read_wav_header
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.errors import AudioError, Reason
from xtts_pipeline.system.regular_files import read_regular_file

SAMPLE_RATES = range(1_000, 768_001)
MAX_CHANNELS = 64
MAX_FILE_BYTES = 1 << 29
BLOCK_SAMPLES = 1 << 16
RESAMPLING_QUALITY = "HQ"
INT16_SCALE = np.float32(1 / 32_768)
OGG_END_OF_STREAM = 4
OGG_HEADER_BYTES = 27  # up to the segment table; the last of them is its length
# A sample of at least this magnitude counts as clipped. 8-bit samples reach at most 127/128.
FULL_SCALE = 0.9999
FULL_SCALE_8_BIT = 127 / 128


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

    Raises AudioError if the clip is unreadable, truncated, empty, not finite, too short, too long, silent or clipped.
    """
    decoded = decode_clip(source, limits, name)
    wave = decoded.wave
    if decoded.sample_rate != audio.sample_rate:
        wave = soxr.resample(wave, decoded.sample_rate, audio.sample_rate, quality=RESAMPLING_QUALITY)
        if wave.size == 0:
            detail = f"{name}: under one sample at audio.sample_rate={audio.sample_rate}"
            raise AudioError(Reason.AUDIO_TOO_SHORT, detail)
    return normalize_loudness(wave, audio)


def decode_clip(source: bytes, limits: LimitsConfig, name: str) -> DecodedClip:
    """Return the checked clip, neither resampled nor normalised. Raises AudioError as `decode_wave` does."""
    try:
        decoded = _decode(source, limits)
        _check_sound(decoded, limits)
    except AudioError as error:
        raise AudioError(error.reason, f"{name}: {error.detail}") from None
    return decoded


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
    if not source:
        raise AudioError(Reason.AUDIO_UNREADABLE, "the file has 0 bytes; expected a sound file")
    header = read_wav_header(source)
    if header is not None:
        _check_wav_header(header, limits)
        if header.is_plain_16_bit:
            return _decode_plain_wav(source, header)
    if source[:4] == b"OggS":
        _check_ogg_end(source)
    try:
        with soundfile.SoundFile(_SeekableBytes(source)) as file:
            _check_header(file.frames, file.samplerate, file.channels, limits)
            return _decode_blocks(file)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        # Only libsndfile's own words: the rest holds an object's address, which must not reach the cache's bytes.
        problem = error.error_string if isinstance(error, soundfile.LibsndfileError) else " ".join(str(error).split())
        detail = f"cannot be decoded ({problem}); expected WAV, FLAC, OGG or MP3"
        raise AudioError(Reason.AUDIO_UNREADABLE, detail) from None


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


def _decode_blocks(file: soundfile.SoundFile) -> DecodedClip:
    """Mix the channels block by block, so that memory stays within twice the mono clip, whatever the channel count."""
    full_scale = FULL_SCALE_8_BIT if file.subtype in ("PCM_U8", "PCM_S8") else FULL_SCALE
    blocks, clipped, read = [], 0, 0
    while len(block := file.read(BLOCK_SAMPLES, dtype="float32", always_2d=True)):
        clipped += _clipped_samples(block, full_scale)
        read += len(block)
        blocks.append(block[:, 0] if file.channels == 1 else block.mean(axis=1, dtype=np.float32))
    if read < file.frames:
        found = f"the header promises {file.frames} samples and {read} can be decoded"
        raise AudioError(Reason.AUDIO_UNREADABLE, f"truncated, {found}")
    return DecodedClip(np.concatenate(blocks), file.samplerate, clipped / (read * file.channels))


def _clipped_samples(samples: np.ndarray, full_scale: float) -> int:
    # Most clips stay below full scale; min and max show that at a fraction of the cost of counting.
    if samples.max() < full_scale and samples.min() > -full_scale:
        return 0
    return int(np.count_nonzero(np.abs(samples) >= full_scale))


def _check_wav_header(header: WavHeader, limits: LimitsConfig) -> None:
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
    seconds = samples / sample_rate
    if seconds > limits.max_seconds:
        raise _too_long(seconds, limits)
    if seconds < limits.min_seconds:
        detail = f"{seconds:.3f} s is under limits.min_seconds={limits.min_seconds:g}"
        raise AudioError(Reason.AUDIO_TOO_SHORT, detail)


def _too_long(seconds: float, limits: LimitsConfig) -> AudioError:
    found = f"{seconds:.1f} s by its header is over limits.max_seconds={limits.max_seconds:g}"
    return AudioError(Reason.AUDIO_TOO_LONG, f"{found}; split the clip or raise the limit")


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
    if not np.isfinite(peak) or not np.isfinite(wave).all():
        first = int(np.flatnonzero(~np.isfinite(wave))[0])
        raise AudioError(Reason.AUDIO_NOT_FINITE, f"sample {first} is {wave[first]}; expected finite numbers")
    peak_db = 20 * np.log10(peak) if peak > 0 else -np.inf
    if peak_db < limits.min_peak_db:
        found = f"its peak of {peak_db:.1f} dB" if peak > 0 else "silence, which"
        raise AudioError(Reason.AUDIO_SILENT, f"{found} is under limits.min_peak_db={limits.min_peak_db:g}")
    if decoded.clipped_share > limits.max_clipped_share:
        share = f"{decoded.clipped_share:.1%} of its samples are at full scale"
        detail = f"{share}, over limits.max_clipped_share={limits.max_clipped_share:g}"
        raise AudioError(Reason.AUDIO_CLIPPED, detail)
