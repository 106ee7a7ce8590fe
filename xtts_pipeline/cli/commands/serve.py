"""`xtts serve`: speak for other programs, by OpenAI's speech API and the Wyoming protocol."""

import contextlib
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import COUNT, FOLDER, Seconds
from xtts_pipeline.cli.run_options import RunPath, synthesis_option, vocoder_option
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.serving.listening import listen
from xtts_pipeline.system.installation import require_extra
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.storage import own_name

MODULES = ("prometheus_client", "starlette", "uvicorn", "wyoming")
MIN_TOKEN_CHARACTERS, MAX_TOKEN_BYTES = 16, 4_096
# OpenAI's own limit.
MAX_CHARACTERS = 4_096
WYOMING_PORT = 10_200
_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<path>.+)", re.DOTALL)


class NamedVoicePath(RunPath):
    """`NAME=PATH`, or a path whose folder is the name of the voice."""

    alternative = "; or name a voice folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name and the path. Raises CheckpointError if no voice is there."""
        named = None if Path(value).exists() else _NAMED.fullmatch(value)
        path: Path = super().convert(named["path"] if named else value, param, ctx)
        return (named["name"] if named else own_name(path)), path


@click.command(
    cls=DocumentedCommand,
    example="xtts serve --voice runs/first --vocoder runs/vocoder",
    sections={"Limits": ["max_requests", "max_characters", "max_seconds"]},
)
@click.option(
    "--voice",
    "voices",
    type=NamedVoicePath(),
    multiple=True,
    required=True,
    metavar="[NAME=]PATH",
    help="Voice folder, run or checkpoint; repeatable. Its name is that of the folder, unless NAME is given.",
)
@vocoder_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; others need --token-file.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8_000, show_default=True, help="Port; 0: any free one.")
@click.option(
    "--token-file", type=FOLDER, help=f"File with the token of clients, {MIN_TOKEN_CHARACTERS} characters up."
)
@click.option("--wyoming", is_flag=True, help="Serve the Wyoming protocol as well, for Home Assistant.")
@click.option("--wyoming-port", type=click.IntRange(0, 65_535), help=f"Port of --wyoming.  [default: {WYOMING_PORT}]")
@click.option("--trust-network", is_flag=True, help="Allow --wyoming, which has no token, at another --host.")
@click.option(
    "--batch",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Decode so many waiting requests of one voice together, if there are as many.",
)
@click.option("--max-requests", type=COUNT, default=32, show_default=True, help="Requests at once; more get a 429.")
@click.option("--max-characters", type=COUNT, default=MAX_CHARACTERS, show_default=True, help="The longest text.")
@click.option(
    "--max-seconds", type=Seconds(1.0), default=300.0, show_default=True, help="The longest time of a request."
)
@synthesis_option
@click.pass_obj
def serve(
    debug: bool,
    /,
    voices: Sequence[tuple[str, Path]],
    vocoder: Path | str | None,
    host: str,
    port: int,
    token_file: Path | None,
    wyoming: bool,
    wyoming_port: int | None,
    trust_network: bool,
    batch: int,
    max_requests: int,
    max_characters: int,
    max_seconds: float,
    overrides: Sequence[str],
) -> None:
    """Speak for other programs, by HTTP and the Wyoming protocol."""
    require_extra("serve", MODULES, "xtts serve")
    table = dict(voices)
    if len(table) < len(voices):
        raise ConfigError("--voice: two voices have the same name; name one as in --voice other=PATH")
    if wyoming_port is not None and not wyoming:
        raise ConfigError(
            f"--wyoming-port {wyoming_port}: the protocol is not served; add --wyoming, or leave this out"
        )
    wyoming_port = WYOMING_PORT if wyoming_port is None else wyoming_port
    token = None if token_file is None else _read_token(token_file)
    if not _is_loopback(host):
        if token is None:
            raise ConfigError(f"--host {host}: other machines can reach it; add --token-file, or leave out --host")
        if wyoming and not trust_network:
            raise ConfigError(
                f"--wyoming --host {host}: the protocol has no token, so each machine that reaches port {wyoming_port} "
                "could use it; add --trust-network if all are trusted, or leave out --host"
            )
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(listen(host, port))]
        if wyoming:
            sockets.append(stack.enter_context(listen(host, wyoming_port, "--wyoming-port")))
        _, server = stack.enter_context(tensorflow("xtts_pipeline.serving.server", echo=debug))
        settings = server.ServerSettings(
            token=token,
            max_requests=max_requests,
            batch=batch,
            max_characters=max_characters,
            max_seconds=max_seconds,
            debug=debug,
        )
        server.serve(table, vocoder, overrides, sockets, settings)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_token(path: Path) -> str:
    expected = f"expected a file with one token in ASCII, {MIN_TOKEN_CHARACTERS} characters or more"
    try:
        token = read_regular_file(path, MAX_TOKEN_BYTES).decode("ascii").strip()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {expected}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: found other characters than ASCII; {expected}") from None
    if not token.isprintable() or " " in token:
        raise ConfigError(f"{path}: found white space or control characters in the token; {expected}")
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise ConfigError(f"{path}: found {len(token)} characters; {expected}")
    return token
