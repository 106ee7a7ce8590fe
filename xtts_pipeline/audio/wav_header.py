"""Read the header of a RIFF WAVE file without decoding it.

libsndfile silently shortens a WAV with a truncated data chunk. This reader reports both the size that the header
promises and the bytes that the file holds.
"""

import struct
from dataclasses import dataclass

PCM = 1
EXTENSIBLE = 0xFFFE
# The codecs whose samples have a fixed size, as libsndfile names them.
WAV_CODECS = {PCM: "PCM_16", 3: "FLOAT", 6: "ALAW", 7: "ULAW"}
# Programs that pipe a WAV and cannot seek back write sizes from here on, such as 0x7fffffff and 0xffffffff.
LEAST_UNKNOWN_BYTES = 0x7FFFF000


@dataclass(frozen=True)
class WavHeader:
    """The format and position of the samples in a WAV file.

    `promised_bytes` is the size in the data chunk; `data_bytes` is how many of these the file holds.
    """

    format_tag: int
    channels: int
    sample_rate: int
    bits: int
    block_bytes: int
    data_offset: int
    promised_bytes: int
    data_bytes: int

    @property
    def is_plain_16_bit(self) -> bool:
        """Whether the samples are interleaved little-endian int16 with nothing between them."""
        return (
            self.format_tag == PCM and self.bits == 16 and self.channels > 0 and self.block_bytes == 2 * self.channels
        )

    @property
    def promised_seconds(self) -> float:
        """Duration according to the header; 0 if its rate or block size is 0."""
        bytes_per_second = self.block_bytes * self.sample_rate
        return self.promised_bytes / bytes_per_second if bytes_per_second else 0.0


def read_wav_header(source: bytes) -> WavHeader | None:
    """Return the header, or None if the bytes are no RIFF or RF64 WAVE file or lack the format or data chunk."""
    if len(source) < 12 or source[:4] not in (b"RIFF", b"RF64") or source[8:12] != b"WAVE":
        return None
    layout: tuple[int, int, int, int, int, int] | None = None
    rf64_bytes: int | None = None
    offset = 12
    while offset + 8 <= len(source):
        name, size = struct.unpack_from("<4sI", source, offset)
        body = offset + 8
        if name == b"fmt " and size >= 16 and body + 16 <= len(source):
            layout = struct.unpack_from("<HHIIHH", source, body)
            if layout[0] == EXTENSIBLE and size >= 26 and body + 26 <= len(source):
                # The true format is the first two bytes of the sub-format's GUID.
                layout = (struct.unpack_from("<H", source, body + 24)[0], *layout[1:])
        elif name == b"ds64" and size >= 16 and body + 16 <= len(source):
            rf64_bytes = struct.unpack_from("<Q", source, body + 8)[0]
        elif name == b"data":
            if layout is None:
                return None
            tag, channels, sample_rate, _, block_bytes, bits = layout
            available = len(source) - body
            promised = available if size >= LEAST_UNKNOWN_BYTES else size
            if size == 0xFFFFFFFF and rf64_bytes is not None:
                promised = rf64_bytes
            return WavHeader(tag, channels, sample_rate, bits, block_bytes, body, promised, min(promised, available))
        offset = body + size + size % 2
    return None
