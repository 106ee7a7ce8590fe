"""The settings of every command as frozen pydantic models, with their defaults and bounds.

Every default is defined here and nowhere else. Opens no file.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
"""0 or more, below 1."""
Weight = Annotated[float, Field(ge=0.0, le=1e6)]
"""0 to 1,000,000."""
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""1 to 2,147,483,647."""
Batch = Annotated[int, Field(ge=1, le=65_536)]
"""1 to 65,536."""
Width = Annotated[int, Field(ge=1, le=16_384)]
"""1 to 16,384."""


# Not strict, as YAML has lists and no tuples.
Sizes = Annotated[tuple[Annotated[int, Field(ge=2, le=65_536, strict=True)], ...], Field(max_length=16, strict=False)]
"""Up to 16 numbers from 2 to 65,536."""
MINUTES = "^[1-9][0-9]{0,5} ?(min|minutes?)$"
MAX_BUCKETS = 8
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 4_000, 192_000
MAX_SHOWN = 100


def show_value(value: object) -> str:
    """Return a setting's value as YAML and JSON have it, letters of every script as they are."""
    return json.dumps(value, ensure_ascii=False)


def shorten(value: object) -> str:
    """Return the repr of a value, cut after 100 characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class Section(BaseModel):
    """A frozen group of settings; unknown keys and values of the wrong type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class AudioConfig(Section):
    """How a sound file becomes log-mel frames. Every key is part of the cache's fingerprint."""

    sample_rate: Annotated[int, Field(ge=MIN_SAMPLE_RATE, le=MAX_SAMPLE_RATE)] = 22_050
    fft_size: Annotated[int, Field(ge=64, le=65_536)] = 1_024
    hop_samples: Annotated[int, Field(ge=1, le=65_536)] = 256
    window_samples: Annotated[int, Field(ge=1, le=65_536)] = 1_024
    mel_bins: Annotated[int, Field(ge=1, le=1_024)] = 80
    min_hz: Annotated[float, Field(ge=0.0, le=96_000.0)] = 0.0
    max_hz: Annotated[float, Field(gt=0.0, le=96_000.0)] = 8_000.0
    floor: Annotated[float, Field(ge=1e-10, le=0.1)] = 1e-5
    trim_db: Annotated[float, Field(gt=0.0, le=200.0)] | None = None
    trim_margin_seconds: Annotated[float, Field(ge=0.0, le=60.0)] = 0.05
    normalize: Literal["none", "peak", "rms", "lufs"] = "none"
    normalize_to_db: Annotated[float, Field(ge=-100.0, le=0.0)] = -23.0

    @model_validator(mode="after")
    def _consistent(self) -> "AudioConfig":
        if self.window_samples > self.fft_size:
            raise ValueError(f"window_samples={self.window_samples} is over fft_size={self.fft_size}")
        if self.max_hz > self.sample_rate / 2:
            raise ValueError(f"max_hz={self.max_hz:g} is over half of sample_rate={self.sample_rate}")
        if self.min_hz >= self.max_hz:
            raise ValueError(f"min_hz={self.min_hz:g} is not below max_hz={self.max_hz:g}")
        return self

    @property
    def frame_seconds(self) -> float:
        """The time from one frame to the next."""
        return self.hop_samples / self.sample_rate

    @property
    def overlap(self) -> int:
        """Number of frames that overlap at each sample: the hops of one frame."""
        return -(-self.fft_size // self.hop_samples)


class TextConfig(Section):
    """How a transcript becomes token ids. Every key is part of the cache's fingerprint."""

    language: Annotated[str, Field(min_length=2, max_length=64)] = "en"
    tokens: Literal["characters", "phonemes"] = "characters"
    symbols: Annotated[str, Field(min_length=1, max_length=8_192)] = "corpus"
    lowercase: bool = True
    expand: bool = True
    blank: bool = False


class LimitsConfig(Section):
    """What a record may hold. Nothing is cut to fit: a clip outside the limits is rejected with its reason."""

    max_text_length: Annotated[int, Field(ge=3, le=10_000)] = 200
    max_mel_frames: Annotated[int, Field(ge=2, le=100_000)] = 880
    min_seconds: Annotated[float, Field(ge=0.0, le=3_600.0)] = 0.1
    max_seconds: Annotated[float, Field(gt=0.0, le=3_600.0)] = 60.0
    min_peak_db: Annotated[float, Field(ge=-200.0, le=0.0)] = -60.0
    max_clipped_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05


class CacheConfig(Section):
    """How records are divided into splits and shards.

    store_waves: also store the sound under each clip's mel frames, for the training of a vocoder.
    """

    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    validation_share: Share = 0.01
    test_share: Share = 0.0
    records_per_shard: Count = 256
    store_waves: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> "CacheConfig":
        if self.validation_share + self.test_share >= 1.0:
            raise ValueError(
                f"validation_share={self.validation_share:g} and test_share={self.test_share:g} "
                "leave nothing to train on"
            )
        return self


Bucket = tuple[int, int]  # the max_text_length and max_mel_frames of its records


def _read_buckets(value: object) -> object:
    """Return a list of pairs as tuples, and `auto` and None as they are. Raises ValueError for anything else."""
    if value is None or value == "auto":
        return value
    pairs = [tuple(pair) for pair in value if isinstance(pair, list | tuple)] if isinstance(value, list | tuple) else []
    sides = [side for pair in pairs for side in pair]
    is_pairs = all(len(pair) == 2 for pair in pairs) and all(type(side) is int for side in sides)
    if not pairs or not is_pairs or len(pairs) != len(value):  # type: ignore[arg-type]
        raise ValueError(
            f"found {shorten(value)}, expected [[max_text_length, max_mel_frames], ...] in whole numbers, auto or null"
        )
    buckets = tuple((text, mel) for text, mel in pairs)
    check_bucket_order(buckets)
    return buckets


def check_bucket_order(buckets: Sequence[Bucket]) -> None:
    """Raise ValueError unless there are at most 8 buckets, none of them empty, each larger than the one before."""
    if len(buckets) > MAX_BUCKETS:
        raise ValueError(
            f"found {len(buckets)} buckets, expected at most {MAX_BUCKETS}, since each one is compiled; leave some out"
        )
    if min(buckets[0]) < 1:
        raise ValueError(f"bucket {list(buckets[0])} holds nothing, expected at least 1 token and 1 frame")
    for before, after in pairwise(buckets):
        if before == after or before[0] > after[0] or before[1] > after[1]:
            raise ValueError(
                f"bucket {list(after)} comes after {list(before)}, expected a larger one; order the buckets"
            )


def check_last_bucket(buckets: Sequence[Bucket], limits: LimitsConfig) -> None:
    """Raise ValueError unless the last bucket equals the limits, so that every clip within the limits has a bucket."""
    largest = (limits.max_text_length, limits.max_mel_frames)
    if buckets[-1] != largest:
        remedy = f"add {list(largest)}, or set limits.max_text_length and limits.max_mel_frames to the last bucket"
        raise ValueError(
            f"data.buckets: the last one is {list(buckets[-1])}, expected the limits {list(largest)}; {remedy}"
        )


class DataConfig(Section):
    """How training reads the shards, and into which shapes preprocessing divides them.

    buckets: a record belongs to the first bucket that is large enough; with null, the limits are the one shape.
    `auto` chooses for a new cache; an existing one keeps its own.
    cache_records: read a cache's training records into memory before the first batch (`auto`: if they are small).
    cache_features: keep the features that `xtts train --data` computes in memory.
    prefetch_to_device: copy batches to the GPU, or to each of several, ahead of their step.
    """

    buckets: Annotated[tuple[Bucket, ...] | Literal["auto"] | None, BeforeValidator(_read_buckets)] = "auto"
    shuffle_records: Count = 2_048
    num_workers: Count | Literal["auto"] = "auto"
    prefetch_buffer_size: Annotated[int, Field(ge=1, le=1_024)] | Literal["auto"] = "auto"
    prefetch_to_device: bool = True
    cache_records: bool | Literal["auto"] = "auto"
    cache_features: bool = False

    @property
    def are_buckets_given(self) -> bool:
        """Whether `buckets` was set, even to its default: then a cache of one shape may get buckets."""
        return "buckets" in self.model_fields_set


class AugmentationConfig(Section):
    """How training clips are changed, at random in every epoch; off by default. Validation clips are never changed."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    gain_db: Annotated[float, Field(ge=0.0, le=40.0)] = 0.0
    noise_min_snr_db: Annotated[float, Field(ge=-20.0, le=100.0)] | None = None
    noise_max_snr_db: Annotated[float, Field(ge=-20.0, le=100.0)] = 40.0
    speed_change: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    time_masks: Annotated[int, Field(ge=0, le=16)] = 0
    time_mask_frames: Count = 20
    frequency_masks: Annotated[int, Field(ge=0, le=16)] = 0
    frequency_mask_bins: Count = 8

    @property
    def is_on(self) -> bool:
        """Whether any change is configured."""
        return bool(
            self.gain_db
            or self.noise_min_snr_db is not None
            or self.speed_change
            or self.time_masks
            or self.frequency_masks
        )

    @model_validator(mode="after")
    def _ordered(self) -> "AugmentationConfig":
        if self.noise_min_snr_db is not None and self.noise_min_snr_db > self.noise_max_snr_db:
            raise ValueError(
                f"noise_min_snr_db={self.noise_min_snr_db:g} is over noise_max_snr_db={self.noise_max_snr_db:g}"
            )
        return self


class ModelConfig(Section):
    """The network's shape; the defaults are the preset `small`.

    flow_layers: layers that draw the detail of the decoder's frames; 0 leaves them averaged.
    voice_latents: vectors that describe a voice; with 0 the network takes no references. For a cache with one speaker
    `xtts train` takes 0 by default.
    """

    width: Width = 256
    heads: Width = 4
    encoder_layers: Annotated[int, Field(ge=1, le=100)] = 3
    decoder_layers: Annotated[int, Field(ge=1, le=100)] = 4
    feedforward_width: Width = 1_024
    flow_layers: Annotated[int, Field(ge=0, le=100)] = 4
    frames_per_step: Annotated[int, Field(ge=1, le=64)] = 2
    voice_latents: Annotated[int, Field(ge=0, le=1_024)] = 32
    voice_layers: Annotated[int, Field(ge=1, le=100)] = 1
    reference_frames: Annotated[int, Field(ge=8, le=100_000)] = 256
    remat: bool = False
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "ModelConfig":
        if self.width % self.heads:
            raise ValueError(f"width={self.width} is not a multiple of heads={self.heads}")
        if self.width % 2:
            raise ValueError(f"width={self.width} is odd; positions need sine and cosine pairs")
        return self


class VocoderConfig(Section):
    """The network of the trained vocoder, its crops and its losses; the defaults are the preset `vocoder`.

    A batch has `training.batch_size` crops, `crops_per_clip` of each clip that is read for it.
    adversarial_weight: with 0 there are no discriminators.
    adversarial_start: the steps before it have the losses against the recording alone, and cost less.
    discriminator_sizes, discriminator_periods: FFT sizes and periods, one discriminator for each.
    """

    width: Width = 512
    blocks: Annotated[int, Field(ge=1, le=100)] = 8
    crop_frames: Annotated[int, Field(ge=8, le=10_000)] = 64
    crops_per_clip: Annotated[int, Field(ge=1, le=1_024)] = 1
    mel_weight: Annotated[float, Field(gt=0.0, le=1e6)] = 45.0
    spectral_weight: Weight = 2.0
    spectral_sizes: Sizes = (512, 1_024, 2_048)
    adversarial_weight: Weight = 1.0
    adversarial_start: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    feature_weight: Weight = 2.0
    discriminator_width: Width = 32
    discriminator_sizes: Sizes = (512, 1_024, 2_048)
    discriminator_periods: Sizes = ()


class TrainingConfig(Section):
    """The optimizer, the schedule of the learning rate, and how often a run logs, evaluates and saves.

    voice_change: the frequencies of clips with a reference are moved by factors up to 1 + voice_change, pitch and
    formants alike, and down to the inverse.
    """

    batch_size: Batch | Literal["auto"] = 16
    accumulation_steps: Batch = 1
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    # The folders of checkpoints have eight digits.
    steps: Annotated[int, Field(ge=1, le=99_999_999)] = 20_000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    learning_rate: Annotated[float, Field(ge=1e-12, le=1e3)] = 1e-3
    schedule: Literal["cosine", "noam", "exponential", "constant"] = "cosine"
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = 200
    final_lr_fraction: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    weight_decay: Annotated[float, Field(ge=0.0, le=1e3)] = 0.01
    clip_norm: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    ema_decay: Share = 0.999
    reference_dropout: Share = 0.2
    voice_change: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    aligned_by_step: Count = 3_000
    # A checkpoint holds the metrics of each step since the last report.
    log_every: Annotated[int, Field(ge=1, le=100_000)] = 10
    evaluate_every: Count = 500
    save_every: Count | Annotated[str, Field(pattern=MINUTES)] = 500
    keep_checkpoints: Count = 3
    max_consecutive_skips: Count = 20
    patience: Count | None = None
    sample_every_evaluations: Count | None = 4
    sample_sentences: Annotated[int, Field(ge=1, le=64)] = 4
    jit_compile: bool = True
    strict_shapes: bool = True
    check_memory: bool = True
    debug_eager: bool = False
    autotune: bool = False
    autotune_seconds: Annotated[float, Field(gt=0.0, le=3_600.0)] = 60.0

    @property
    def clips_per_batch(self) -> int:
        """The batch size as a number. Raises ValueError for `auto`, which `xtts train` replaces with a number first."""
        if self.batch_size == "auto":
            raise ValueError(
                "training.batch_size is still auto; the number depends on the cache and on the machine's memory"
            )
        return self.batch_size

    @property
    def product_type(self) -> str:
        """The type of matrix products; float32 for `auto`, which `xtts train` replaces with this machine's choice."""
        return "float32" if self.precision == "auto" else self.precision

    @property
    def save_every_seconds(self) -> int | None:
        """The seconds between checkpoints; None if `save_every` counts steps."""
        return None if isinstance(self.save_every, int) else 60 * int(self.save_every.partition("min")[0])

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingConfig":
        if self.batch_size != "auto" and self.batch_size % self.accumulation_steps:
            raise ValueError(
                f"batch_size={self.batch_size} is not a multiple of accumulation_steps={self.accumulation_steps}"
            )
        if self.schedule == "exponential" and self.final_lr_fraction == 0.0:
            raise ValueError(
                "schedule=exponential with final_lr_fraction=0: the rate would be 0 from the first step; "
                "give a share over 0"
            )
        if self.debug_eager and self.autotune:
            raise ValueError("debug_eager=true with autotune=true: only the compiled step can be tuned; leave one out")
        return self


class SynthesisConfig(Section):
    """How a trained network decodes speech, and how Griffin-Lim renders it.

    max_frames_per_token: a text's speech ends after so many frames for each of its tokens.
    flow_steps: steps by which the decoder draws the detail of its frames; more take longer.
    guidance: how strongly the drawn detail follows the text, below 600 Hz, and more above; 1: as in training. Over 1
        flow steps take twice as long. For a cache with several speakers `xtts train` takes 1 by default.
    pitch_range: how far the pitch moves from its mean, in predicted distances. Predictions are means, so real speech
        moves further; `evaluate` measures how far.
    chunk_frames: frames of the first chunks of a stream; all others are longer, and cost less per frame.
    max_attempts: how often a piece of a text is decoded at most, if words are skipped or repeated.
    """

    max_frames_per_token: Annotated[float, Field(ge=1.0, le=1_000.0)] = 16.0
    batch_size: Annotated[int, Field(ge=2, le=1_024)] = 8
    flow_steps: Annotated[int, Field(ge=1, le=100)] = 4
    guidance: Annotated[float, Field(ge=1.0, le=10.0)] = 3.0
    pitch_range: Annotated[float, Field(ge=0.0, le=4.0)] = 1.0
    chunk_frames: Annotated[int, Field(ge=1, le=100_000)] = 32
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    griffin_lim_iterations: Annotated[int, Field(ge=1, le=10_000)] = 20
    griffin_lim_momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99


class Config(Section):
    """All settings of a run, validated as a whole."""

    audio: AudioConfig = AudioConfig()
    text: TextConfig = TextConfig()
    limits: LimitsConfig = LimitsConfig()
    cache: CacheConfig = CacheConfig()
    data: DataConfig = DataConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    model: ModelConfig = ModelConfig()
    vocoder: VocoderConfig = VocoderConfig()
    training: TrainingConfig = TrainingConfig()
    synthesis: SynthesisConfig = SynthesisConfig()

    def with_settings(self, section: str, **settings: object) -> "Config":
        """Return the config with other values, which are not validated, in one of its sections."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=settings)})

    @model_validator(mode="after")
    def _buckets_end_at_the_limits(self) -> "Config":
        if isinstance(self.data.buckets, tuple):
            check_last_bucket(self.data.buckets, self.limits)
        return self
