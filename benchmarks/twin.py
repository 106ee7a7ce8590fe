"""The network, its losses and its optimizer in PyTorch: the twin of the compiled step. Run by side_by_side.py.

    pip install torch==2.13.0

The same layers with the same parameters, as a PyTorch user would write them: scaled_dot_product_attention, fused AdamW,
torch.nn.functional.dropout. Four parts of the TensorFlow step are left out: the smoothing of the aligner's frames and
its walk through them, the search for the pitch, and metrics that are no loss. The batch holds the alignment and the
pitch instead. Needs neither TensorFlow nor the package.
"""

import json
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

MEL_CENTRE, MEL_SCALE = -5.0, 4.0
TEXT_TAPS = REFERENCE_TAPS = 5
CONVNEXT_TAPS, PREDICTOR_TAPS = 7, 3
PLACE_FEATURES, FLOW_TIME_FEATURES = 3, 64
HARMONIC_FEATURES, HIGHEST_FEATURE_HZ, REFERENCE_HZ = 64, 2_000.0, 150.0
MAX_OCTAVES = 3.0
NOISE, HIGHEST_FREQUENCY = 0.5, 200.0
PROSODY_WEIGHT, OCTAVES_WEIGHT, LARGEST_SQUARED_PITCH_ERROR = 0.3, 10.0, 0.1
LARGEST_DURATION_ERROR, LEAST_DURATION = 2.0, 1e-3
ALIGNER_WIDTH, ALIGNER_TAPS = 128, 3
BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """Return bool [B, size]: True for the first `length` positions of each row."""
    return torch.arange(size, device=lengths.device)[None, :] < lengths[:, None]


def harmonics(prosody: Tensor) -> Tensor:
    """Return where the harmonics of each token's pitch lie, [B, S, HARMONIC_FEATURES]."""
    voicing, octaves = prosody[..., 1:2], prosody[..., 2:3]
    cycles = 2.0 ** -octaves.clamp(-MAX_OCTAVES, MAX_OCTAVES) / REFERENCE_HZ
    hz = torch.arange(1, HARMONIC_FEATURES + 1, device=prosody.device) * (HIGHEST_FEATURE_HZ / HARMONIC_FEATURES)
    return torch.cos(2.0 * np.pi * cycles * hz) * voicing.clamp(0.0, 1.0)


def duration_deviance(error: Tensor) -> Tensor:
    """Return the Gamma distribution's deviance of the logs of measured over predicted durations."""
    bounded = error.clamp(max=LARGEST_DURATION_ERROR)
    return 2.0 * (bounded.expm1() - bounded + (error - bounded) * math.expm1(LARGEST_DURATION_ERROR))


def sinusoid_positions(length: int, width: int) -> Tensor:
    """Return float32 [length, width]."""
    angle = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2)[None, :] / width)
    return torch.tensor(np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, width).astype(np.float32))


class Convolution(nn.Module):
    """A convolution along time of [B, T, inputs]."""

    def __init__(self, inputs: int, outputs: int, taps: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inputs, outputs, taps, padding=taps // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, T, outputs]."""
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return [B, F, D]."""
        query, key, value = (self._split(part) for part in (self.query(x), self.key(memory), self.value(memory)))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).reshape(x.shape))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """Two dense layers with a ReLU between."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, S, D]."""
        return self.narrow(F.relu(self.widen(x)))


class EncoderLayer(nn.Module):
    """Attention to itself and to a context, then a feed-forward layer."""

    def __init__(self, model: dict) -> None:
        super().__init__()
        self.rate = model["dropout"]
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(model["width"]), nn.LayerNorm(model["width"])
        self.attention = Attention(model["width"], model["heads"])
        self.feedforward = FeedForward(model["width"], model["feedforward_width"])

    def forward(self, x: Tensor, mask: Tensor, context: Tensor | None = None) -> Tensor:
        """Return [B, S, D]."""
        normal = self.attention_norm(x)
        memory = normal if context is None else torch.cat([context, normal], dim=1)
        x = x + F.dropout(self.attention(normal, memory, mask), self.rate)
        return x + F.dropout(self.feedforward(self.feedforward_norm(x)), self.rate)


class ConvNextBlock(nn.Module):
    """Depthwise convolution, normalisation, two dense layers with a GELU between, a scale."""

    def __init__(self, model: dict, scale: float) -> None:
        super().__init__()
        width, inner = model["width"], model["feedforward_width"]
        self.depthwise = nn.Conv1d(width, width, CONVNEXT_TAPS, padding=CONVNEXT_TAPS // 2, groups=width)
        self.norm, self.widen, self.narrow = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)
        self.scale = nn.Parameter(torch.full([width], scale))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the block adds to x, [B, F, D]."""
        normal = self.norm(self.depthwise(x.transpose(1, 2)).transpose(1, 2))
        return self.narrow(F.gelu(self.widen(normal), approximate="tanh")) * self.scale


class ProsodyPredictor(nn.Module):
    """Two convolutions over tokens."""

    def __init__(self, model: dict) -> None:
        super().__init__()
        width, self.rate = model["width"], model["dropout"]
        self.convolutions = nn.ModuleList(Convolution(width, width, PREDICTOR_TAPS) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.to_prosody = nn.Linear(width, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return [B, S, 4]."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.dropout(norm(F.relu(convolution(x * mask[..., None]))), self.rate)
        return self.to_prosody(x)


class FlowHead(nn.Module):
    """The velocity of frames on their way from noise to speech."""

    def __init__(self, model: dict, step_bins: int) -> None:
        super().__init__()
        width, layers = model["width"], model["flow_layers"]
        self.register_buffer("frequencies", torch.logspace(0, np.log10(HIGHEST_FREQUENCY), FLOW_TIME_FEATURES // 2))
        self.from_frames, self.from_hidden = nn.Linear(step_bins, width), nn.Linear(width, width)
        self.from_time = nn.Linear(FLOW_TIME_FEATURES, width)
        self.blocks = nn.ModuleList(ConvNextBlock(model, 1.0 / layers) for _ in range(layers))
        self.norm, self.to_velocity = nn.LayerNorm(width), nn.Linear(width, step_bins)

    def forward(self, coarse: Tensor, hidden: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the predicted and the true velocity, [B, F, R * M]."""
        start = coarse.detach() + NOISE * torch.randn_like(coarse)
        time = torch.rand(len(coarse), 1, device=coarse.device)
        velocity = target - start
        angle = time * self.frequencies
        condition = self.from_hidden(hidden) + self.from_time(torch.cat([angle.sin(), angle.cos()], dim=-1))[:, None]
        x = (self.from_frames(start + time[..., None] * velocity) + condition) * mask
        for block in self.blocks:
            x = (x + block(x)) * mask
        return self.to_velocity(self.norm(x)), velocity


class TextEncoder(nn.Module):
    """Embedding, a convolution, positions, self-attention layers."""

    def __init__(self, model: dict, symbols: int, max_length: int) -> None:
        super().__init__()
        width, self.rate = model["width"], model["dropout"]
        self.embedding = nn.Embedding(symbols, width)
        self.convolution = Convolution(width, width, TEXT_TAPS)
        self.position_scale = nn.Parameter(torch.ones([]))
        self.register_buffer("positions", sinusoid_positions(max_length, width))
        self.layers = nn.ModuleList(EncoderLayer(model) for _ in range(model["encoder_layers"]))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return [B, S, D]."""
        x = torch.where(mask[..., None], self.embedding(tokens), 0.0)
        x = x + F.relu(self.convolution(x)) + self.position_scale * self.positions
        x = F.dropout(x, self.rate)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        return self.norm(x)


class VoiceEncoder(nn.Module):
    """Encodes a reference as a fixed number of latents."""

    def __init__(self, model: dict, bins: int) -> None:
        super().__init__()
        width = model["width"]
        self.widen, self.convolution = nn.Linear(bins, width), Convolution(width, width, REFERENCE_TAPS)
        self.frame_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.latents = nn.Parameter(torch.randn(model["voice_latents"], width) * 0.5)
        self.layers = nn.ModuleList(EncoderLayer(model) for _ in range(model["voice_layers"]))

    def forward(self, reference: Tensor, lengths: Tensor) -> Tensor:
        """Return [B, V, D]."""
        mask = length_mask(lengths, reference.shape[1])
        frames = torch.where(mask[..., None], F.relu(self.widen(reference)), 0.0)
        frames = self.frame_norm(frames + F.relu(self.convolution(frames)))
        latents = self.latents[None].expand(len(lengths), -1, -1)
        everywhere = torch.cat([mask, mask.new_ones(latents.shape[:2])], dim=1)[:, None, None, :]
        for layer in self.layers:
            latents = layer(latents, everywhere, frames)
        return self.norm(latents)


class Twin(nn.Module):
    """The whole network. `shape` has symbols, max_text_length, max_mel_frames and mel_bins."""

    def __init__(self, model: dict, shape: dict) -> None:
        super().__init__()
        width, bins = model["width"], shape["mel_bins"]
        self.model, self.bins, self.per_step = model, bins, model["frames_per_step"]
        self.reference_frames = min(model["reference_frames"], shape["max_mel_frames"])
        self.silence = (shape["pad_value"] - MEL_CENTRE) / MEL_SCALE
        self.text_encoder = TextEncoder(model, shape["symbols"], shape["max_text_length"])
        self.predictor = ProsodyPredictor(model)
        self.prosody_to_tokens = nn.Linear(3 + HARMONIC_FEATURES, width)
        self.place = nn.Linear(PLACE_FEATURES, width)
        layers = model["decoder_layers"]
        self.blocks = nn.ModuleList(ConvNextBlock(model, 1.0 / layers) for _ in range(layers))
        self.norm, self.to_frames = nn.LayerNorm(width), nn.Linear(width, self.per_step * bins)
        if model["flow_layers"]:
            self.flow_head = FlowHead(model, self.per_step * bins)
        if model["voice_latents"]:
            self.voice_encoder, self.voice_to_tokens = VoiceEncoder(model, bins), nn.Linear(width, width)
            self.null_voice = nn.Parameter(torch.randn(model["voice_latents"], width) * 0.5)
        self.aligner_embedding = nn.Embedding(shape["symbols"], ALIGNER_WIDTH)
        self.aligner_convolution = Convolution(ALIGNER_WIDTH, ALIGNER_WIDTH, ALIGNER_TAPS)
        self.aligner_to_frame = nn.Linear(ALIGNER_WIDTH, bins)

    def forward(self, batch: dict[str, Tensor], mel: Tensor, first: Tensor, crop: Tensor) -> tuple:
        """Return coarse frames and hidden [B, F, ...], their mask, predicted prosody and measured durations [B, S]."""
        text_mask = length_mask(batch["text_length"], batch["tokens"].shape[1])
        tokens = self.text_encoder(batch["tokens"], text_mask)
        if self.model["voice_latents"]:
            tokens = tokens + self.voice_to_tokens(self._voice(mel, first, crop).mean(dim=1))[:, None]
        prosody = self.predictor(tokens, text_mask)
        tokens = tokens + self.prosody_to_tokens(torch.cat([batch["prosody"], harmonics(batch["prosody"])], dim=-1))
        duration = batch["posterior"].sum(dim=1)
        step = torch.arange(-(-mel.shape[1] // self.per_step), device=mel.device)
        mask = (step * self.per_step < batch["mel_length"][:, None])[..., None].float()
        shares, places = self._places(duration / self.per_step, step.float())
        x = (shares @ tokens + self.place(places)) * mask
        for block in self.blocks:
            x = (x + F.dropout(block(x), self.model["dropout"])) * mask
        hidden = self.norm(x)
        return self.to_frames(hidden), hidden, mask, prosody, duration

    def mean_frames(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the aligner's mean frame of each token, [B, S, M]."""
        x = torch.where(mask[..., None], self.aligner_embedding(tokens), 0.0)
        return self.aligner_to_frame(x + F.relu(self.aligner_convolution(x)))

    @staticmethod
    def _places(duration: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Return the share of each token in each step [B, F, S], and where each step lies in its token [B, F, 3]."""
        end = duration.cumsum(dim=1)[:, None]
        begin, step = end - duration[:, None], step[:, None]
        shares = (torch.minimum(step + 1.0, end) - torch.maximum(step, begin)).clamp(min=0.0)
        length = duration.clamp(min=LEAST_DURATION)
        after = ((step + 0.5 - begin) / length[:, None]).clamp(0.0, 1.0)
        from_begin = (shares * after).sum(dim=-1)
        from_end = shares.sum(dim=-1) - from_begin
        return shares, torch.stack([from_begin, from_end, (shares @ length.log()[..., None])[..., 0]], dim=-1)

    def _voice(self, mel: Tensor, first: Tensor, crop: Tensor) -> Tensor:
        frame = (first[:, None] + torch.arange(self.reference_frames, device=mel.device)).clamp(max=mel.shape[1] - 1)
        reference = torch.gather(mel, 1, frame[..., None].expand(-1, -1, self.bins))
        return torch.where((crop > 0)[:, None, None], self.voice_encoder(reference, crop), self.null_voice)


class TrainStep:
    """One update: losses, gradients, clipping, AdamW, the average of the weights."""

    def __init__(self, twin: Twin, training: dict, *, is_compiled: bool, is_bfloat16: bool) -> None:
        self.twin, self.training, self.is_bfloat16 = twin, training, is_bfloat16
        decayed = [parameter for parameter in twin.parameters() if parameter.dim() >= 2]
        plain = [parameter for parameter in twin.parameters() if parameter.dim() < 2]
        groups = [{"params": decayed, "weight_decay": training["weight_decay"]}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(
            groups, lr=training["learning_rate"], betas=(BETA_1, BETA_2), eps=EPSILON, fused=True
        )
        self.average = [parameter.detach().clone() for parameter in twin.parameters()]
        self.objective = torch.compile(self._objective) if is_compiled else self._objective

    def __call__(self, batch: dict[str, Tensor]) -> float:
        """Run the step and return the objective."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(batch["mel"].device.type, torch.bfloat16, enabled=self.is_bfloat16):
            objective = self.objective(batch)
        objective.backward()
        nn.utils.clip_grad_norm_(self.twin.parameters(), self.training["clip_norm"])
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, [parameter.detach() for parameter in self.twin.parameters()], 0.001)
        return objective.item()

    def _objective(self, batch: dict[str, Tensor]) -> Tensor:
        mel = (batch["mel"].float() - MEL_CENTRE) / MEL_SCALE
        length, per_step = batch["mel_length"], self.twin.per_step
        crop = torch.clamp(length // 2, max=self.twin.reference_frames)
        first = (torch.rand(len(length), device=mel.device) * (length - crop + 1)).long()
        coarse, hidden, step_mask, prosody, duration = self.twin(batch, mel, first, crop)
        target = F.pad(mel, (0, 0, 0, -mel.shape[1] % per_step))
        frame = torch.arange(target.shape[1], device=mel.device)[None, :]
        is_real = frame < length[:, None]
        target = torch.where(is_real[..., None], target, self.twin.silence)
        mask = is_real & ~((frame >= first[:, None]) & (frame < (first + crop)[:, None]))
        difference = torch.where(mask[..., None], coarse.reshape(target.shape) - target, 0.0)
        count = target.shape[-1] * mask.sum()
        loss = (difference.abs().sum() + difference.square().sum()) / count
        if self.twin.model["flow_layers"]:
            predicted, true = self.twin.flow_head(coarse, hidden, target.reshape(coarse.shape), step_mask)
            error = torch.where(mask[..., None], (predicted - true).reshape(target.shape), 0.0)
            loss = loss + error.square().sum() / count
        text_mask = length_mask(batch["text_length"], batch["tokens"].shape[1])
        measured = torch.cat([duration.clamp(min=LEAST_DURATION).log()[..., None], batch["prosody"]], dim=-1)
        size = (prosody - measured)[..., 3].abs()
        squared = size.clamp(max=LARGEST_SQUARED_PITCH_ERROR)
        error = duration_deviance((measured - prosody)[..., 0]) + (prosody - measured)[..., 1:3].square().sum(dim=-1)
        error = error + OCTAVES_WEIGHT * measured[..., 2] * squared * (2.0 * size - squared)
        prosody_error = torch.where(text_mask, error, 0.0).sum() / text_mask.sum()
        return loss + PROSODY_WEIGHT * prosody_error + self._token_error(batch, mel, text_mask)

    def _token_error(self, batch: dict[str, Tensor], mel: Tensor, text_mask: Tensor) -> Tensor:
        means = self.twin.mean_frames(batch["tokens"], text_mask)
        squares = mel.square().sum(dim=-1)[:, :, None] + means.square().sum(dim=-1)[:, None, :]
        error = (squares - 2.0 * mel @ means.transpose(1, 2)) / mel.shape[-1]
        return (batch["posterior"] * error).sum() / batch["mel_length"].sum()


def main() -> None:
    """Print the number of parameters, then answer each line of stdin, a number of steps, with their seconds as JSON."""
    job = json.loads(sys.argv[1])
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    twin = Twin(job["model"], job["shape"]).to(device)
    step = TrainStep(twin, job["training"], is_compiled=job["is_compiled"], is_bfloat16=job["is_bfloat16"])
    arrays = np.load(job["batch"])
    batch = {name: torch.tensor(arrays[name], device=device) for name in arrays.files}
    batch = {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in batch.items()}
    started = time.perf_counter()
    step(batch)
    first = time.perf_counter() - started
    print(
        json.dumps({"parameters": sum(parameter.numel() for parameter in twin.parameters()), "first_seconds": first}),
        flush=True,
    )
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            started = time.perf_counter()
            step(batch)
            seconds.append(time.perf_counter() - started)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
