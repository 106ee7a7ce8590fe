"""The rules of `xtts config migrate`: the new settings for each key and flag of the earlier system (MyXTTS).

No TensorFlow. docs/migration.md shows the same table; a test compares the two.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Settings = dict[str, Any]  # `section.key` to value
Old = Mapping[str, Any]  # each earlier key, without its section, to its value

_SCHEDULES = ("noam", "cosine", "exponential", "constant")


class NotCarriedError(ValueError):
    """A value that becomes no setting, with the reason."""


@dataclass(frozen=True)
class Rule:
    """What becomes of a key.

    becomes: the new key, or None if the key is dropped.
    make: returns the new settings for a value and all old keys.
    why: the reason for dropping the key, or how the new setting differs.
    """

    becomes: str | None
    make: Callable[[Any, Old], Settings]
    why: str = ""


def _kept(key: str, why: str = "") -> Rule:
    return Rule(key, lambda value, _: {key: value}, why)


def _nothing(_value: Any, _old: Old) -> Settings:
    return {}


def _switch(key: str, value: Any, why: str = "") -> Rule:
    """Return the rule of a key that sets `value` if it is true, and keeps the default if it is false."""
    return Rule(key, lambda is_on, _: {key: value} if is_on else {}, why)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotCarriedError(f"{value!r} is no number")
    # A whole number may be too large for a float.
    if not abs(value) <= sys.float_info.max:
        raise NotCarriedError(f"{value!r} is not finite")
    return float(value)


def _divisor(old: Old, key: str, default: float) -> float:
    number = _number(old.get(key, default))
    if number <= 0.0:
        raise NotCarriedError(f"{key} is {number:g}, expected a number over 0")
    return number


def _whole(number: float) -> int:
    if not math.isfinite(number):
        raise NotCarriedError("it comes to more than can be counted")
    return round(number)


def _sample_rate(value: Any, _old: Old) -> Settings:
    is_low = type(value) is int and 0 < value < 16_000
    return {"audio.sample_rate": value, **({"audio.max_hz": value / 2} if is_low else {})}


def _schedule(value: Any, old: Old) -> Settings:
    if old.get("use_warmup_cosine_schedule"):
        raise NotCarriedError("use_warmup_cosine_schedule takes its place")
    if value not in _SCHEDULES:
        raise NotCarriedError(f"{value!r} is none of {', '.join(_SCHEDULES)}")
    return {"training.schedule": value}


def _peak(value: Any, old: Old) -> Settings:
    if not value:
        return {}
    if old.get("enable_loudness_normalization"):
        raise NotCarriedError("enable_loudness_normalization takes its place")
    # The default level is one of loudness, far too low for a peak.
    return {"audio.normalize": "peak", "audio.normalize_to_db": 0.0}


def _loudness(value: Any, old: Old) -> Settings:
    if not old.get("enable_loudness_normalization"):
        raise NotCarriedError("it is the level of enable_loudness_normalization, which is not on")
    return {"audio.normalize_to_db": value}


def _shuffle(value: Any, old: Old) -> Settings:
    return {"data.shuffle_records": _whole(_number(value) * _number(old.get("batch_size", 16)))}


def _final_rate(value: Any, old: Old) -> Settings:
    share = round(min(_number(value) / _divisor(old, "learning_rate", 1e-4), 1.0), 6)
    if not share and old.get("scheduler") == "exponential":
        raise NotCarriedError("an exponential schedule never falls to 0: training.final_lr_fraction stays as it is")
    return {"training.final_lr_fraction": share}


def _reference(value: Any, old: Old) -> Settings:
    frames = _number(value) * _number(old.get("sample_rate", 22_050)) / _divisor(old, "hop_length", 256)
    return {"model.reference_frames": max(_whole(frames), 8)}


CARRIED: dict[str, dict[str, Rule]] = {
    "Shapes and lengths": {
        "max_text_length": _kept("limits.max_text_length", "longer texts are rejected with their reason, not cut"),
        "max_mel_frames": _kept("limits.max_mel_frames", "longer clips are rejected with their reason, not cut"),
        "max_audio_length": _kept("limits.max_seconds", "rejected, not cut"),
        "min_audio_length": _kept("limits.min_seconds"),
    },
    "Loading": {
        "num_workers": _kept("data.num_workers"),
        "prefetch_buffer_size": _kept("data.prefetch_buffer_size"),
        "prefetch_to_gpu": _kept("data.prefetch_to_device"),
        "shuffle_buffer_multiplier": Rule(
            "data.shuffle_records", _shuffle, "times batch_size: the buffer counts records"
        ),
        "auto_tune_performance": _kept("training.autotune"),
    },
    "The compiled step": {
        "enable_xla_compilation": _kept("training.jit_compile"),
        "enable_xla": _kept("training.jit_compile"),
        "enable_graph_mode": Rule(
            "training.debug_eager", lambda is_on, _: {} if is_on else {"training.debug_eager": True}, "if false"
        ),
        "enable_eager_debug": _kept("training.debug_eager"),
        "mixed_precision": Rule(
            "training.precision",
            lambda is_on, _: {"training.precision": "float16" if is_on else "float32"},
            "float16 where true; bfloat16 needs no loss scale and is the better choice",
        ),
        "enable_gradient_checkpointing": _switch("model.remat", True, "where true; about 1.3 times the step"),
    },
    "Batches, optimizer and schedule": {
        "batch_size": _kept("training.batch_size"),
        "gradient_accumulation_steps": _kept(
            "training.accumulation_steps", "divides the batch as before, now inside the compiled step"
        ),
        "learning_rate": _kept("training.learning_rate"),
        "warmup_steps": _kept("training.warmup_steps"),
        "weight_decay": _kept("training.weight_decay"),
        "gradient_clip_norm": _kept("training.clip_norm"),
        "scheduler": Rule("training.schedule", _schedule, "noam, cosine, exponential or constant"),
        "use_warmup_cosine_schedule": _switch("training.schedule", "cosine", "where true"),
        "min_learning_rate": Rule("training.final_lr_fraction", _final_rate, "as a share of learning_rate"),
    },
    "Losses": {},
    "Sound": {
        "sample_rate": Rule("audio.sample_rate", _sample_rate, "under 16 kHz with audio.max_hz at half of it"),
        "n_mels": _kept("audio.mel_bins"),
        "n_fft": _kept("audio.fft_size"),
        "hop_length": _kept("audio.hop_samples"),
        "win_length": _kept("audio.window_samples"),
        "trim_silence": _switch("audio.trim_db", 20.0, "where true: 20 dB, as librosa was asked for"),
        "normalize_audio": Rule(
            "audio.normalize", _peak, "where true, with audio.normalize_to_db at 0: the peak is full scale"
        ),
        "enable_loudness_normalization": _switch(
            "audio.normalize", "lufs", "where true, whatever normalize_audio says; not with xtts train --data"
        ),
        "target_loudness_lufs": Rule("audio.normalize_to_db", _loudness, "where enable_loudness_normalization is true"),
    },
    "Text": {
        "language": _kept("text.language"),
        "add_blank": _kept("text.blank"),
        "use_phonemes": _switch("text.tokens", "phonemes", "where true"),
    },
    "Corpus and splits": {
        "val_split": _kept("cache.validation_share", "by a hash of the id, so that no clip changes its split"),
    },
    "Network and voice": {
        "use_voice_conditioning": Rule(
            "model.voice_latents", lambda is_on, _: {} if is_on else {"model.voice_latents": 0}, "0 if false"
        ),
        "reference_audio_length": Rule("model.reference_frames", _reference, "in frames"),
        "dropout": _kept("model.dropout"),
    },
    "The run": {
        "save_step": _kept("training.save_every"),
        "val_step": _kept("training.evaluate_every"),
        "log_step": _kept("training.log_every"),
        "early_stopping_patience": _kept("training.patience", "counted in evaluations"),
    },
    "Flags of train_main.py": {
        "--batch-size": _kept("training.batch_size"),
        "--num-workers": _kept("data.num_workers", "reading; xtts preprocess has --jobs"),
    },
}

_PIPELINE = "batches are read ahead while the step runs, always; data.prefetch_buffer_size says how many"
_NETWORK = "the network is another one; choose its size by preset: --config tiny, small, base or large (docs/models.md)"
_VOICE = "the voice is 32 latents of a reference, learnt with the network; no loss or encoder of its own"
_CORPUS = (
    "say it to the command: xtts preprocess --data CORPUS --val-data CORPUS --layout NAME; "
    "docs/corpora.md has the layouts"
)
_BALANCE = (
    "losses are masked means in one scale and need no balancing; "
    "training.clip_norm bounds an update, and leaps are reported"
)
_SPEECH = (
    "training speaks fixed sentences of the validation split: "
    "training.sample_every_evaluations, training.sample_sentences"
)

# For each group, the keys that are dropped for each reason.
DROPPED: dict[str, dict[str, str]] = {
    "Shapes and lengths": {
        "records always have a fixed length; several lengths are data.buckets": "pad_to_fixed_length",
        "attention is as long as the texts: limits.max_text_length": "max_attention_sequence_length",
        "limits.max_text_length counts tokens, limits.max_mel_frames frames": "max_text_tokens max_duration_frames",
        "the step is one compiled function, always": "use_memory_efficient_attention",
    },
    "Loading": {
        "TensorFlow operations alone read data, a cache or, with --data, a corpus; no fallback": (
            "use_tf_native_loading"
        ),
        _PIPELINE: (
            "enhanced_gpu_prefetch optimize_cpu_gpu_overlap enable_memory_mapping pin_memory "
            "persistent_workers pipeline_buffer_size"
        ),
        "preprocessing is a command, xtts preprocess; without it there is xtts train --data": "preprocessing_mode",
        "a command, xtts verify-cache; xtts train checks names and sizes each time": "cache_verification",
        "xtts preprocess makes anew what changed; xtts verify-cache --repair what is broken": (
            "auto_rebuild_token_cache auto_rebuild_mel_cache"
        ),
        "data is prepared on the CPU; the device has the step to itself": "data_gpu model_gpu model_start_delay",
        "data.num_workers, auto by default": "tensorflow_data_autotune parallel_data_calls",
    },
    "The compiled step": {
        "training.precision": "auto_mixed_precision",
        "TensorRT is for inference; xtts export writes a SavedModel": "enable_tensorrt",
        "training.accumulation_steps and model.remat save memory": "max_memory_fraction enable_memory_cleanup",
        "left to TensorFlow's own environment": (
            "allow_memory_growth inter_op_parallelism_threads intra_op_parallelism_threads"
        ),
        "the devices that CUDA_VISIBLE_DEVICES leaves are those that are used": "multi_gpu visible_gpus",
    },
    "Batches, optimizer and schedule": {
        "training.steps counts updates: epochs x clips / batch_size": "epochs",
        "the schedules have none: warmup_steps and final_lr_fraction are all": "scheduler_params cosine_restarts",
        "AdamW with its usual constants, fused into the step": "optimizer beta1 beta2 eps",
    },
    "Losses": {
        "the mel loss has weight 1; others are weighed against it": "mel_loss_weight",
        "frames are drawn by a flow, which needs no divergence": "kl_loss_weight",
        "durations come from the aligner; all losses of prosody have one fixed weight": (
            "duration_loss_weight pitch_loss_weight energy_loss_weight prosody_pitch_loss_weight "
            "prosody_energy_loss_weight"
        ),
        "there is no attention between text and frames: the aligner finds which token a frame belongs to": (
            "attention_loss_weight"
        ),
        "speech ends with its last token, whose duration is predicted": (
            "stop_loss_weight stop_token_positive_weight stop_label_smoothing"
        ),
        "a mel is no label": "use_label_smoothing mel_label_smoothing",
        "mels are judged by L1 plus L2, and their detail by the error of the flow": (
            "use_huber_loss huber_delta use_simple_loss"
        ),
        _BALANCE: (
            "use_adaptive_loss_weights loss_smoothing_factor max_loss_spike_threshold gradient_norm_threshold "
            "loss_alert_threshold adaptive_weight_max_change_percent adaptive_weight_cooling_period "
            "adaptive_weight_min_stable_steps adaptive_weight_min_warmup_steps adaptive_weight_variance_threshold"
        ),
        _VOICE: (
            "voice_similarity_loss_weight speaker_classification_loss_weight voice_reconstruction_loss_weight "
            "prosody_matching_loss_weight spectral_consistency_loss_weight voice_cloning_loss_weight "
            "contrastive_loss_temperature contrastive_loss_margin gst_style_loss_weight "
            "auxiliary_head_regularization"
        ),
        "the rate is the reference's and the text's": "speaking_rate_loss_weight",
    },
    "Sound": {
        "audio.trim_db cuts silence off both ends": "enable_vad",
        "augmentation.speed_change changes speed, and with --data pitch": "enable_pitch_shift pitch_shift_range",
        "augmentation.noise_min_snr_db adds white noise": (
            "enable_noise_mixing noise_mixing_probability noise_mixing_snr_range"
        ),
    },
    "Text": {
        "text.language chooses how texts are normalised, text.expand and text.lowercase whether": "text_cleaners",
        "text.language, or a corpus's own column": (
            "phoneme_language enable_phone_normalization language_detection_method"
        ),
        "a cache has the languages of its corpus": "languages supported_languages enable_multilingual",
        "tokens are the corpus's characters or phonemes (text.tokens, text.symbols), kept in the cache": (
            "tokenizer_type tokenizer_model text_vocab_size use_optimized_nllb_vocab optimized_vocab_size "
            "enable_weight_tying shared_embedding_languages vocab_optimization_method"
        ),
    },
    "Corpus and splits": {
        _CORPUS: (
            "dataset_path dataset_name metadata_train_file metadata_eval_file wavs_train_dir wavs_eval_dir "
            "auto_download_ljspeech"
        ),
        "what cache.validation_share and cache.test_share leave": "train_split",
        "give xtts preprocess the rows that you want": "train_subset_fraction eval_subset_fraction subset_seed",
        "speakers are those of the corpus": "enable_multispeaker speaker_id_pattern max_speakers",
    },
    "Network and voice": {
        _NETWORK: (
            "text_encoder_dim text_encoder_layers text_encoder_heads d_model n_heads n_layers audio_encoder_dim "
            "audio_encoder_layers audio_encoder_heads decoder_dim decoder_layers decoder_heads decoder_strategy "
            "use_duration_predictor diffusion_timesteps diffusion_beta_schedule enable_diffusion_inference"
        ),
        _VOICE: (
            "speaker_embedding_dim voice_conditioning_layers voice_similarity_threshold enable_voice_adaptation "
            "voice_encoder_dropout enable_speaker_interpolation voice_cloning_temperature "
            "voice_conditioning_strength max_reference_audio_length min_reference_audio_length voice_feature_dim "
            "enable_voice_denoising use_pretrained_speaker_encoder pretrained_speaker_encoder_path "
            "freeze_speaker_encoder speaker_encoder_type use_gst gst_num_style_tokens gst_style_token_dim "
            "gst_style_embedding_dim gst_num_heads gst_reference_encoder_dim gst_enable_emotion_control "
            "gst_enable_speaking_rate_control"
        ),
        "training makes mels; see docs/vocoder.md": "vocoder_type vocoder_upsample_rates vocoder_upsample_kernel_sizes",
        "see docs/vocoder.md": "vocoder_resblock_kernel_sizes vocoder_resblock_dilation_sizes vocoder_initial_channel",
    },
    "The run": {
        (
            "any lower value counts: of distortion_db, or of the validation loss if there are no samples"
        ): "early_stopping_min_delta",
        "say it to the command: xtts train --output RUN": "checkpoint_dir",
        "metrics.jsonl and TensorBoard have all figures": "use_wandb wandb_project",
        _SPEECH: (
            "spectrogram_log_interval spectrogram_log_num_examples spectrogram_log_example_index "
            "spectrogram_reference_subset spectrogram_reference_index enable_automatic_evaluation "
            "evaluation_interval enable_text2audio_eval text2audio_interval_steps text2audio_output_dir "
            "text2audio_texts text2audio_speaker_id text2audio_log_tensorboard"
        ),
    },
    "Flags of train_main.py": {
        "xtts preprocess --data CORPUS, then xtts train --cache CACHE; or xtts train --data CORPUS": "--train-data",
        "xtts preprocess --val-data CORPUS; or xtts train --data CORPUS --val-data CORPUS": "--val-data",
        "there is one level; training.autotune=true measures what suits this machine": "--optimization-level",
    },
}

GROUPS: dict[str, dict[str, Rule]] = {
    name: carried | {key: Rule(None, _nothing, why) for why, keys in DROPPED[name].items() for key in keys.split()}
    for name, carried in CARRIED.items()
}
RULES: dict[str, Rule] = {key: rule for group in GROUPS.values() for key, rule in group.items()}
