"""`xtts segment`: cut long recordings into a corpus of clips with their texts."""

import sys
from contextlib import suppress
from pathlib import Path

import click

from xtts_pipeline.cli.corpus_options import Encoding
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import FOLDER, Seconds, json_option, print_report
from xtts_pipeline.config.languages import canonical_language
from xtts_pipeline.corpus.segment.segment import Recording, segment_corpus
from xtts_pipeline.errors import OutputError
from xtts_pipeline.system.terminal import echo_line


@click.command(cls=DocumentedCommand, example="xtts segment --data book/ --output clips/ --language de")
@click.option("--data", type=FOLDER, required=True, help="A long recording, or a folder of them, each beside its text.")
@click.option("--output", type=FOLDER, required=True, help="Folder of the corpus that is made.")
@click.option(
    "--language",
    default="en",
    show_default=True,
    help="Language of the texts: a code or name, or a voice of espeak-ng.",
)
@click.option("--max-seconds", type=Seconds(2.0), default=10.0, show_default=True, help="Length of the longest clip.")
@click.option("--encoding", type=Encoding(), default="", help="Encoding of the texts, such as cp1252.")
@json_option
def segment(data: Path, output: Path, language: str, max_seconds: float, encoding: str, as_json: bool) -> None:
    """Cut long recordings at pauses into clips with their texts.

    book.wav beside book.txt, or a folder of such pairs, becomes a corpus for `xtts preprocess`. The text is spoken by
    espeak-ng and aligned with the recording. Parts that do not fit are left out and listed in left_out.jsonl.
    """
    if output.exists():
        raise OutputError(f"{output}: exists already; choose another --output")

    with suppress(ValueError):  # a voice of espeak-ng
        language = canonical_language(language, with_hint=False)

    def show(recording: Recording) -> None:
        if sys.stderr.isatty():
            echo_line(f"{recording.sound}")

    print_report(segment_corpus(data, output, language, max_seconds, encoding, show), as_json)
