"""Read what a RIFF WAVE header promises, without decoding.

libsndfile quietly shortens a WAV whose data chunk is cut off; here the promise is compared with the bytes that are there.
"""

import struct
from dataclasses import dataclass

PCM = 1
EXTENSIBLE = 0xFFFE
# From here on: what programs write that pipe a WAV and cannot seek back, 0x7ffff000 and 0x7fffffff and 0xffffffff among them.
UNKNOWN_BYTES = 0x7FFFF000


@dataclass(frozen=True)
class WavHeader:
    """The format and the place of the samples in a WAV file.

    `promised_bytes` is what the data chunk says; `data_bytes` is how many of them the file holds.
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
        """Duration by the header's own figures; 0 if they make no sense."""
        bytes_per_second = self.block_bytes * self.sample_rate
        return self.promised_bytes / bytes_per_second if bytes_per_second else 0.0


def read_wav_header(source: bytes) -> WavHeader | None:
    """Return the header of a RIFF WAVE file, or None for anything else, or where the format or data chunk is missing."""
    if len(source) < 12 or source[:4] != b"RIFF" or source[8:12] != b"WAVE":
        return None
    layout: tuple[int, int, int, int, int, int] | None = None
    offset = 12
    while offset + 8 <= len(source):
        name, size = struct.unpack_from("<4sI", source, offset)
        body = offset + 8
        if name == b"fmt " and size >= 16 and body + 16 <= len(source):
            layout = struct.unpack_from("<HHIIHH", source, body)
            if layout[0] == EXTENSIBLE and size >= 26 and body + 26 <= len(source):
                # The true format is the first two bytes of the sub-format's GUID.
                layout = (struct.unpack_from("<H", source, body + 24)[0], *layout[1:])
        elif name == b"data":
            if layout is None:
                return None
            tag, channels, sample_rate, _, block_bytes, bits = layout
            there = len(source) - body
            promised = there if size >= UNKNOWN_BYTES else size
            return WavHeader(tag, channels, sample_rate, bits, block_bytes, body, promised, min(promised, there))
        offset = body + size + size % 2
    return None
