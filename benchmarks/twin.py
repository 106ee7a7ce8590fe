"""The network, its losses and its optimizer in PyTorch: the twin of the compiled step. Run by side_by_side.py.

    pip install torch==2.13.0

The same layers with the same parameters, as a PyTorch user would write them: scaled_dot_product_attention where no
weights are needed, fused AdamW, torch.nn.functional.dropout. Two parts of the TensorFlow step are left out: the
attention metrics, and the aligner, whose parameters exist but are unused; the batch holds the previous attention
instead. Needs neither TensorFlow nor the package.
"""

import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

MEL_CENTRE, MEL_SCALE = -5.0, 4.0
GUIDED_LAYERS, GUIDED_HEADS = 2, 2
TEXT_TAPS = REFERENCE_TAPS = POSTNET_TAPS = 5
ALIGNER_WIDTH, ALIGNER_TAPS = 128, 3
BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """Return bool [B, size]: True for the first `length` positions of each row."""
    return torch.arange(size, device=lengths.device)[None, :] < lengths[:, None]


def sinusoid_positions(length: int, width: int) -> Tensor:
    """Return float32 [length, width]."""
    angle = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2)[None, :] / width)
    return torch.tensor(np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, width).astype(np.float32))


class Convolution(nn.Module):
    """A convolution along time of [B, T, inputs]."""

    def __init__(self, inputs: int, outputs: int, taps: int, *, is_causal: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inputs, outputs, taps)
        before = taps - 1 if is_causal else (taps - 1) // 2
        self.padding = (before, taps - 1 - before)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, T, outputs]."""
        return self.convolution(F.pad(x.transpose(1, 2), self.padding)).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head attention; its weights are computed only on request."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, *, is_causal: bool = False, has_weights: bool = False
    ) -> tuple:
        """Return ([B, F, D], weights [B, H, F, S] or None)."""
        query, key, value = (self._split(part) for part in (self.query(x), self.key(memory), self.value(memory)))
        if has_weights:
            score = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
            weights = torch.softmax(score.masked_fill(~mask, -1e9), dim=-1)
            mixed = weights @ value
        else:
            weights = None
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal)
        return self.output(mixed.transpose(1, 2).reshape(x.shape)), weights

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
        x = x + F.dropout(self.attention(normal, memory, mask)[0], self.rate)
        return x + F.dropout(self.feedforward(self.feedforward_norm(x)), self.rate)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to text, attention to the voice, feed-forward."""

    def __init__(self, model: dict, *, is_guided: bool) -> None:
        super().__init__()
        width, self.rate, self.is_guided = model["width"], model["dropout"], is_guided
        self.self_norm, self.text_norm, self.feedforward_norm = (nn.LayerNorm(width) for _ in range(3))
        self.self_attention, self.text_attention = (Attention(width, model["heads"]) for _ in range(2))
        self.has_voice = model["voice_latents"] > 0
        if self.has_voice:
            self.voice_norm, self.voice_attention = nn.LayerNorm(width), Attention(width, model["heads"])
        self.feedforward = FeedForward(width, model["feedforward_width"])

    def forward(self, x: Tensor, text: Tensor, text_mask: Tensor, voice: Tensor | None) -> tuple:
        """Return ([B, F, D], text weights or None)."""
        normal = self.self_norm(x)
        x = x + F.dropout(self.self_attention(normal, normal, None, is_causal=True)[0], self.rate)
        attended, weights = self.text_attention(self.text_norm(x), text, text_mask, has_weights=self.is_guided)
        x = x + F.dropout(attended, self.rate)
        if self.has_voice:
            x = x + F.dropout(self.voice_attention(self.voice_norm(x), voice, None)[0], self.rate)
        return x + F.dropout(self.feedforward(self.feedforward_norm(x)), self.rate), weights


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


class Postnet(nn.Module):
    """Causal convolutions over finished frames."""

    def __init__(self, model: dict, bins: int) -> None:
        super().__init__()
        self.rate, count = model["dropout"], model["postnet_layers"]
        widths = [bins, *[model["postnet_width"]] * (count - 1), bins]
        self.layers = nn.ModuleList(
            Convolution(widths[i], widths[i + 1], POSTNET_TAPS, is_causal=True) for i in range(count)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:-1])

    def forward(self, mel: Tensor) -> Tensor:
        """Return [B, T, M]."""
        x = mel
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index < len(self.norms):
                x = F.dropout(torch.tanh(self.norms[index](x)), self.rate)
        return mel + x if len(self.layers) else mel


class Twin(nn.Module):
    """The whole network. `shape` has symbols, max_text_length, max_mel_frames and mel_bins."""

    def __init__(self, model: dict, shape: dict) -> None:
        super().__init__()
        width, bins = model["width"], shape["mel_bins"]
        self.model, self.bins, self.per_step = model, bins, model["frames_per_step"]
        self.max_steps = -(-shape["max_mel_frames"] // self.per_step)
        self.reference_frames = min(model["reference_frames"], shape["max_mel_frames"])
        self.silence = (shape["pad_value"] - MEL_CENTRE) / MEL_SCALE
        self.text_encoder = TextEncoder(model, shape["symbols"], shape["max_text_length"])
        prenet = model["prenet_width"]
        self.prenet = nn.ModuleList([nn.Linear(bins, prenet), nn.Linear(prenet, prenet), nn.Linear(prenet, width)])
        self.said_token = nn.Linear(width, width)
        self.position_scale = nn.Parameter(torch.ones([]))
        self.register_buffer("positions", sinusoid_positions(self.max_steps, width))
        first_guided = model["decoder_layers"] - GUIDED_LAYERS
        self.layers = nn.ModuleList(
            DecoderLayer(model, is_guided=i >= first_guided) for i in range(model["decoder_layers"])
        )
        self.norm = nn.LayerNorm(width)
        self.to_frames, self.to_stop = nn.Linear(width, self.per_step * bins), nn.Linear(width, 1)
        self.text_frames = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.per_step * bins))
        self.postnet = Postnet(model, bins)
        if model["voice_latents"]:
            self.voice_encoder = VoiceEncoder(model, bins)
            self.null_voice = nn.Parameter(torch.randn(model["voice_latents"], width) * 0.5)
        self.aligner_embedding = nn.Embedding(shape["symbols"], ALIGNER_WIDTH)
        self.aligner_convolution = Convolution(ALIGNER_WIDTH, ALIGNER_WIDTH, ALIGNER_TAPS)
        self.aligner_to_frame = nn.Linear(ALIGNER_WIDTH, bins)

    def forward(
        self, tokens: Tensor, mel: Tensor, text_length: Tensor, first: Tensor, crop: Tensor, looked: Tensor
    ) -> tuple:
        """Return coarse, fine and text frames [B, T, M], stop logits [B, F] and guided attention [B, G, F, S]."""
        text_mask = length_mask(text_length, tokens.shape[1])
        text = self.text_encoder(tokens, text_mask)
        voice = self._voice(mel, first, crop) if self.model["voice_latents"] else None
        silent = mel.new_full((len(mel), 1, self.bins), self.silence)
        x = torch.cat([silent, mel[:, self.per_step - 1 :: self.per_step][:, : self.max_steps - 1]], dim=1)
        for layer in self.prenet[:2]:
            x = F.dropout(F.relu(layer(x)), self.model["prenet_dropout"])
        x = self.prenet[2](x) + self.said_token(looked @ text) + self.position_scale * self.positions
        x = F.dropout(x, self.model["dropout"])
        weights_of_layers = []
        for layer in self.layers:
            x, weights = layer(x, text, text_mask[:, None, None, :], voice)
            if weights is not None:
                weights_of_layers.append(weights[:, :GUIDED_HEADS])
        attention, x = torch.cat(weights_of_layers, dim=1), self.norm(x)
        shape = (len(mel), -1, self.bins)
        text_frames = self.text_frames(attention.mean(dim=1) @ text).reshape(shape)
        coarse = self.to_frames(x).reshape(shape) + text_frames
        return coarse, self.postnet(coarse), text_frames, self.to_stop(x)[..., 0], attention

    def _voice(self, mel: Tensor, first: Tensor, crop: Tensor) -> Tensor:
        frame = (first[:, None] + torch.arange(self.reference_frames, device=mel.device)).clamp(max=mel.shape[1] - 1)
        reference = torch.gather(mel, 1, frame[..., None].expand(-1, -1, self.bins))
        return torch.where((crop > 0)[:, None, None], self.voice_encoder(reference, crop), self.null_voice)


class TrainStep:
    """One update: losses, gradients, clipping, AdamW, the average of the weights."""

    def __init__(self, twin: Twin, training: dict, *, is_compiled: bool) -> None:
        self.twin, self.training = twin, training
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
        given = (batch["tokens"], mel, batch["text_length"], first, crop, batch["looked"])
        coarse, fine, text_frames, stop_logit, attention = self.twin(*given)
        target = F.pad(mel, (0, 0, 0, coarse.shape[1] - mel.shape[1]), value=self.twin.silence)
        frame = torch.arange(coarse.shape[1], device=mel.device)[None, :]
        mask = (frame < length[:, None]) & ~((frame >= first[:, None]) & (frame < (first + crop)[:, None]))
        steps = (length + per_step - 1) // per_step
        loss = sum(self._mel_loss(frames, target, mask) for frames in (coarse, fine, text_frames))
        loss = loss + self.training["stop_weight"] * self._stop_loss(stop_logit, steps)
        return loss + self.training["guided_attention_weight"] * self._guided_loss(
            attention, batch["text_length"], steps
        )

    @staticmethod
    def _mel_loss(frames: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        difference = torch.where(mask[..., None], frames - target, 0.0)
        return (difference.abs().sum() + difference.square().sum()) / (target.shape[-1] * mask.sum())

    def _stop_loss(self, logit: Tensor, steps: Tensor) -> Tensor:
        step = torch.arange(logit.shape[1], device=logit.device)[None, :]
        is_last = (step == steps[:, None] - 1).float()
        weight = torch.where(step < steps[:, None], 1.0 + is_last * (self.training["stop_positive_weight"] - 1.0), 0.0)
        return F.binary_cross_entropy_with_logits(logit, is_last, weight, reduction="sum") / weight.sum()

    def _guided_loss(self, attention: Tensor, text_length: Tensor, steps: Tensor) -> Tensor:
        along_steps = torch.arange(attention.shape[2], device=attention.device)[None, :] / steps[:, None]
        along_text = torch.arange(attention.shape[3], device=attention.device)[None, :] / text_length[:, None]
        off = along_steps[:, :, None] - along_text[:, None, :]
        penalty = 1.0 - torch.exp(-off.square() / (2.0 * self.training["guided_attention_width"] ** 2))
        per_step = (attention.mean(dim=1) * penalty).sum(dim=-1)
        return torch.where(length_mask(steps, attention.shape[2]), per_step, 0.0).sum() / steps.sum()


def main() -> None:
    """Print the number of parameters, then answer each line of stdin, a number of steps, with their seconds as JSON."""
    job = json.loads(sys.argv[1])
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if job["threads"]:
        torch.set_num_threads(job["threads"])
    twin = Twin(job["model"], job["shape"]).to(device)
    step = TrainStep(twin, job["training"], is_compiled=job["is_compiled"])
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
