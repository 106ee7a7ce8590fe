import base64
import io
import re
import socket
import tempfile
import threading
from functools import partial
from pathlib import Path

import httpx2
import numpy as np
import openai
import pytest
import soundfile

from tests.serving.running import PART_SAMPLES, GatedVoice, Running, running
from tests.waiting import wait_until
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.serving.worker import SpeechWorker

TOKEN = "a-word-of-clients"  # noqa: S105 (of the tests alone)
HEADERS = {"Content-Type": "application/json"}


def error_of(response) -> dict:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "\n" not in error["message"]
    assert "Traceback" not in error["message"]
    return error


def test_the_openai_client_streams_speech(server: Running, voice: Synthesizer) -> None:
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
        client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="tiny", input="one two three", response_format="wav"
        ) as response,
    ):
        assert response.headers["content-type"] == "audio/wav"
        content = b"".join(response.iter_bytes())
    wave, rate = soundfile.read(io.BytesIO(content))
    assert rate == 22_050
    np.testing.assert_allclose(wave, np.clip(np.concatenate([*voice.stream("one two three")]), -1, 1), atol=1e-4)


def test_the_openai_client_lists_models_and_is_told_its_mistakes(server: Running) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert "tts-1" in [model.id for model in client.models.list()]
        with pytest.raises(openai.BadRequestError, match=r"voice: found 'tinny'; did you mean tiny\?"):
            client.audio.speech.create(model="tts-1", voice="tinny", input="abc")
        with pytest.raises(openai.NotFoundError, match="model"):
            client.audio.speech.create(model="bark", voice="tiny", input="abc")


def test_each_speaker_of_a_voice_has_a_name(server: Running) -> None:
    voices = {one["id"]: one for one in server.client.get("/v1/audio/voices").json()["voices"]}
    assert list(voices) == ["tiny", "tiny/ann", "tiny/bob"]
    assert (voices["tiny"]["languages"], voices["tiny"]["language"]) == (["en"], "en")
    assert [one["takes_reference"] for one in voices.values()] == [True, False, False]
    ann, bob = (server.speak(voice=f"tiny/{name}").content for name in ("ann", "bob"))
    assert server.speak().content == ann != bob


def test_a_reference_changes_the_voice(server: Running, tmp_path: Path) -> None:
    clip = io.BytesIO()
    soundfile.write(clip, 0.3 * np.sin(np.arange(22_050) * 0.1), 22_050, format="WAV")
    encoded = base64.b64encode(clip.getvalue()).decode()
    spoken = server.speak(reference=encoded)
    assert spoken.status_code == 200
    assert spoken.content != server.speak().content
    assert "takes none" in error_of(server.speak(voice="tiny/ann", reference=encoded))["message"]


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"input": ""}, "input: found no text, expected words to speak", "input"),
        ({"input": "☃"}, "no letter or digit to speak", "input"),
        ({"input": "a" * 201}, "201 characters, expected at most 200", "input"),
        ({"input": 5}, "input: Input should be a valid string", "input"),
        ({"voice": "../../etc/passwd"}, "voice: found '../../etc/passwd'", "voice"),
        ({"voice": "tiny/../tiny"}, "voice: found", "voice"),
        ({"voice": "tiny\x00"}, "voice: found", "voice"),
        ({"language": "xx"}, "language: found 'xx'; known are en", "language"),
        ({"language": "en" + 5_000 * "-aaaaa"}, "language: found 'en-aaaaa-aaaaa", "language"),
        ({"response_format": "aac"}, "response_format: found 'aac', expected", "response_format"),
        ({"speed": 9}, "speed: found 9, expected 0.25 to 4", "speed"),
        ({"stream_format": "sse"}, "stream_format: Input should be 'audio'", "stream_format"),
        ({"sped": 1}, "sped: Extra inputs are not permitted", "sped"),
        ({"reference": "%%%"}, "reference: not base64", "reference"),
        ({"reference": base64.b64encode(b"no sound").decode()}, "choose another clip", "reference"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(server: Running, fields: dict, message: str, param: str) -> None:
    response = server.speak(**fields)
    assert response.status_code in (400, 413)
    error = error_of(response)
    assert message in error["message"]
    assert error["param"] == param
    assert tempfile.gettempdir() not in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status"),
    [
        ("POST", "/v1/audio/speech", b"{", HEADERS, 400),
        ("POST", "/v1/audio/speech", b"\xff\xfe", HEADERS, 400),
        ("POST", "/v1/audio/speech", b'{"input": "\\ud800"}', HEADERS, 400),
        ("POST", "/v1/audio/speech", b"[" * 100_000, HEADERS, 400),
        ("POST", "/v1/audio/speech", b'{"input": "abc"}', {"Content-Type": "text/plain"}, 415),
        ("POST", "/v1/audio/speech", b'{"input": "%s"}' % (b"a" * 10_000_000), HEADERS, 413),
        ("GET", "/v1/audio/speech", b"", {}, 405),
        ("GET", "/v1/../../etc/passwd", b"", {}, 404),
    ],
)
def test_a_request_that_cannot_be_read_is_answered(
    server: Running, method: str, path: str, content: bytes, headers: dict, status: int
) -> None:
    response = server.client.request(method, path, content=content, headers=headers)
    assert response.status_code == status
    assert error_of(response)["type"] == "invalid_request_error"


def test_another_method_is_told_which_ones_there_are(server: Running) -> None:
    assert server.client.get("/v1/audio/speech").headers["allow"] == "POST"


def test_the_page_loads_nothing_from_elsewhere(server: Running) -> None:
    response = server.client.get("/")
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<textarea" in response.text
    assert re.findall(r"(?:src|href)=\"(?!data:)|https?://", response.text) == []


def test_a_probe_is_told_that_nothing_speaks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpeechWorker, "_run", lambda _self: None)
    with running({"gated": GatedVoice()}) as served:
        response = served.client.get("/health")
    assert response.status_code == 503
    assert response.json() == {"status": "the thread that speaks has ended; start the server again"}


def test_a_token_is_asked_for_everywhere_but_on_the_page_and_by_a_probe() -> None:
    with running({"gated": GatedVoice()}, token=TOKEN) as served:
        assert served.client.get("/health").json() == {"status": "ok"}
        assert served.client.get("/").status_code == 200
        for path in ("/v1/models", "/v1/audio/voices", "/metrics", "/elsewhere"):
            refused = served.client.get(path, headers={"Authorization": "Bearer another"})
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "token" in error_of(refused)["message"]
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key=TOKEN) as client:
            assert client.models.list().data
        figures = served.client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
        assert [line for line in figures.splitlines() if '"401"' in line and line.endswith(" 4.0")]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("voice.localhost", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("a.example", 403),
    ],
)
def test_without_a_token_a_page_under_another_name_is_refused(server: Running, host: str, status: int) -> None:
    assert server.client.get("/v1/audio/voices", headers={"Host": host}).status_code == status


def test_requests_over_the_limit_are_told_when_to_come_again() -> None:
    gated = GatedVoice(parts=1)
    with running({"gated": gated}, max_requests=2) as served:
        answers: list[int] = []
        threads = [threading.Thread(target=lambda: answers.append(served.speak().status_code)) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: served.metric("xtts_open_requests") == 2)
        refused = served.speak()
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "try again" in error_of(refused)["message"]
        gated.gate.release(2)
        for thread in threads:
            thread.join()
        assert answers == [200, 200]
        assert served.metric("xtts_requests_total", protocol="http", outcome="429") == 1
        assert served.metric("xtts_first_sound_seconds_count") == 2
        assert served.metric("xtts_sound_seconds_total") == pytest.approx(0.2)


def test_characters_that_a_voice_lacks_are_counted() -> None:
    gated = GatedVoice(parts=1)
    gated.gate.release(2)
    with running({"gated": gated}) as served:
        assert [served.speak(text).status_code for text in ("a@b@", "@c")] == [200, 200]
        assert served.metric("xtts_changed_characters_total", voice="gated") == 3


@pytest.mark.parametrize("has_sound", [False, True])
def test_the_speech_of_a_client_that_leaves_is_stopped(has_sound: bool) -> None:
    gated = GatedVoice()
    with running({"gated": gated}) as served:
        body = b'{"input": "abc", "response_format": "pcm"}'
        with socket.create_connection(("127.0.0.1", served.http_port)) as client:
            head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: served.metric("xtts_open_requests") == 1)
            if has_sound:
                gated.gate.release()
                assert client.recv(10).startswith(b"HTTP/1.1 2")
        wait_until(lambda: served.metric("xtts_open_requests") == 0)
        gated.gate.release(50)
        gated.parts = 3
        assert served.speak("after").status_code == 200
        # The part that was being made when the client left is the last of its speech.
        assert gated.made.count("abc") <= 2
        assert served.metric("xtts_requests_total", protocol="http", outcome="left") == 1


def test_a_request_without_sound_at_the_time_limit_is_refused() -> None:
    with running({"gated": GatedVoice()}, max_seconds=1.0) as served:
        late = served.speak()
    assert late.status_code == 429
    assert "within 1 s" in error_of(late)["message"]


def test_a_speech_is_cut_at_the_time_limit() -> None:
    gated = GatedVoice(parts=2)
    gated.gate.release()
    body = {"input": "abc", "response_format": "pcm"}
    # Enough for the first sound on a busy machine.
    with (
        running({"gated": gated}, max_seconds=3.0) as served,
        served.client.stream("POST", "/v1/audio/speech", json=body) as cut,
    ):
        assert cut.status_code == 200
        with pytest.raises(Exception, match=r"peer closed connection|incomplete"):
            cut.read()


def test_a_fault_of_the_code_is_one_line_and_the_server_lives(capsys: pytest.CaptureFixture[str]) -> None:
    gated = GatedVoice(parts=1)
    gated.gate.release(9)
    with running({"gated": gated}) as served:
        broken = served.speak("crash")
        assert broken.status_code == 500
        assert "the server's log has the reason" in error_of(broken)["message"]
        assert len(served.speak().content) == pytest.approx(2 * PART_SAMPLES * 24_000 / 22_050, abs=4)
    assert "error: RuntimeError: a fault of the code\n" in capsys.readouterr().err


def test_speech_that_has_begun_is_finished_at_the_end() -> None:
    gated = GatedVoice(parts=3)
    answers: list[bytes] = []
    with running({"gated": gated}) as served:
        body = {"input": "abc", "response_format": "pcm"}
        call = partial(httpx2.post, f"{served.url}/v1/audio/speech", json=body, timeout=60.0)
        thread = threading.Thread(target=lambda: answers.append(call().content))
        thread.start()
        wait_until(lambda: served.metric("xtts_open_requests") == 1)
        # The end of the block stops the server, and then lets the speech through.
    thread.join()
    assert len(answers[0]) == pytest.approx(2 * 3 * PART_SAMPLES * 24_000 / 22_050, abs=4)
