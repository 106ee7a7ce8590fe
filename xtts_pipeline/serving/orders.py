"""Turn what a client asks for into an order that the worker can speak; every field is checked here.

Voices are looked up by name in a table that is made at start: no name of a client becomes a path.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xtts_pipeline.config.languages import nearest_language
from xtts_pipeline.errors import AudioError, XttsError, did_you_mean
from xtts_pipeline.inference.delivery import FASTEST, SLOWEST
from xtts_pipeline.system.terminal import has_surrogate
from xtts_pipeline.training.checkpoints.state import can_clone

if TYPE_CHECKING:
    # Importing it starts TensorFlow.
    from xtts_pipeline.inference.speech import SpeechStream
    from xtts_pipeline.inference.synthesizer import Synthesizer

# Of what a client sent, in an error.
QUOTED_CHARACTERS = 80


class RequestError(XttsError):
    """A request that cannot be answered: its HTTP status, and the field at fault if there is one."""

    def __init__(self, message: str, field: str | None = None, *, status: int = 400, retry_seconds: int = 0) -> None:
        super().__init__(message)
        self.field, self.status, self.retry_seconds = field, status, retry_seconds


@dataclass(frozen=True)
class ChosenVoice:
    """A voice that clients may name: a synthesizer, a speaker of it (None: the first), and the language to speak."""

    name: str
    synthesizer: "Synthesizer"
    speaker: str | None
    language: str

    @property
    def takes_reference(self) -> bool:
        """Whether a clip may take the speaker's place."""
        checkpoint = self.synthesizer.checkpoint
        return self.speaker is None and can_clone(checkpoint.config.model, checkpoint.cache)


@dataclass(frozen=True)
class SpeechOrder:
    """A checked request: a text, its voice, the content of a sound file to clone, if any, and the speed."""

    voice: ChosenVoice
    text: str
    clip: bytes | None
    speed: float

    def fits(self, other: "SpeechOrder") -> bool:
        """Whether both can be decoded in one batch."""
        return self.clip is other.clip is None and (self.voice, self.speed) == (other.voice, other.speed)

    def open(self) -> "SpeechStream":
        """Start to speak. Raises the errors of `Synthesizer.stream`; none of them names a file."""
        voice = self.voice
        if self.clip is None:
            return voice.synthesizer.stream(self.text, voice.speaker, voice.language, speed=self.speed)
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.clip)
            file.flush()
            try:
                return voice.synthesizer.stream(self.text, None, voice.language, [file.name], self.speed)
            except AudioError as error:
                raise RequestError(str(error).replace(f"{file.name}: ", ""), "reference") from None


def open_together(orders: "Sequence[SpeechOrder]") -> "list[SpeechStream]":
    """Start to speak orders that fit each other. Raises the errors of `Synthesizer.stream`, of any of them."""
    voice, speed, texts = orders[0].voice, orders[0].speed, [order.text for order in orders]
    return voice.synthesizer.stream_batch(texts, voice.speaker, voice.language, speed=speed)


class VoiceTable:
    """The voices by name. A voice of several speakers is also in the table as `NAME/SPEAKER`, for each of them."""

    def __init__(self, synthesizers: "Mapping[str, Synthesizer]", max_characters: int) -> None:
        self.synthesizers, self.max_characters = synthesizers, max_characters
        self._voices: dict[str, tuple[Synthesizer, str | None]] = {}
        for name, synthesizer in synthesizers.items():
            self._voices[name] = synthesizer, None
            speakers = synthesizer.checkpoint.cache.speakers
            self._voices |= {f"{name}/{speaker}": (synthesizer, speaker) for speaker in speakers if len(speakers) > 1}

    def describe(self) -> list[dict[str, object]]:
        """Return each voice as JSON for programs."""
        chosen = [self.find(name, None) for name in self._voices]
        return [
            {
                "id": voice.name,
                "name": voice.name,
                "languages": list(voice.synthesizer.checkpoint.cache.languages),
                "language": voice.language,
                "takes_reference": voice.takes_reference,
                "step": voice.synthesizer.checkpoint.step,
            }
            for voice in chosen
        ]

    def find(self, voice: str | None, language: str | None) -> ChosenVoice:
        """Return the voice of these names, by default the first that speaks the language, and its speaker's language.

        Raises RequestError.
        """
        name = self._first_voice(language) if voice is None else voice
        if name not in self._voices:
            raise _unknown("voice", name, list(self._voices))
        synthesizer, speaker = self._voices[name]
        cache = synthesizer.checkpoint.cache
        languages = cache.languages
        spoken = cache.default_language(speaker) if language is None else nearest_language(language, languages)
        if spoken is None:
            raise _unknown("language", str(language), languages)
        return ChosenVoice(name, synthesizer, speaker, spoken)

    def _first_voice(self, language: str | None) -> str:
        """Return the name of the first voice that speaks the language, else of the first one."""
        names = list(self.synthesizers)
        if language is not None:
            languages = {name: self.synthesizers[name].checkpoint.cache.languages for name in names}
            names = [name for name in names if nearest_language(language, languages[name])] or names
        return names[0]

    def order(
        self,
        text: str,
        voice: str | None = None,
        language: str | None = None,
        clip: bytes | None = None,
        speed: float = 1.0,
    ) -> SpeechOrder:
        """Return the order to speak a text; `clip` is the content of a sound file. Raises RequestError."""
        if len(text) > self.max_characters:
            raise RequestError(
                f"input: {len(text)} characters, expected at most {self.max_characters}; split the text", "input"
            )
        if not text.strip():
            raise RequestError("input: found no text, expected words to speak", "input")
        if has_surrogate(text):
            raise RequestError("input: found no text in UTF-8, expected words to speak", "input")
        chosen = self.find(voice, language)
        if clip is not None and not chosen.takes_reference:
            raise RequestError(
                f"reference: the voice {chosen.name} takes none; choose a voice that clones", "reference"
            )
        if not SLOWEST <= speed <= FASTEST:
            raise RequestError(f"speed: found {speed:g}, expected {SLOWEST:g} to {FASTEST:g}", "speed")
        return SpeechOrder(chosen, text, clip, speed)


def _unknown(field: str, wanted: str, known: "list[str] | tuple[str, ...]") -> RequestError:
    shown = wanted[:QUOTED_CHARACTERS]
    return RequestError(f"{field}: found {shown!r}; {did_you_mean(shown, known)}", field)
