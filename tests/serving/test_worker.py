import asyncio
from contextlib import ExitStack

import numpy as np
import pytest

from tests.serving.running import PART_SAMPLES, GatedVoice
from tests.waiting import wait_until
from xtts_pipeline.errors import TextError
from xtts_pipeline.serving.metrics import ServerMetrics
from xtts_pipeline.serving.orders import RequestError, VoiceTable
from xtts_pipeline.serving.worker import MAX_UNREAD_PARTS, SpeechWorker


@pytest.fixture
def gated() -> GatedVoice:
    return GatedVoice()


@pytest.fixture
def worker(gated: GatedVoice):
    worker = SpeechWorker(4, ServerMetrics())
    yield worker
    gated.gate.release(10_000)
    worker.stop()


def order(gated: GatedVoice, text: str):
    return VoiceTable({"gated": gated}, 100).order(text)


def test_a_new_speech_comes_before_one_that_has_sound_to_play(gated: GatedVoice, worker: SpeechWorker) -> None:
    async def listen() -> None:
        with worker.speak(order(gated, "first")) as first:
            gated.gate.release(3)
            assert [len(await anext(first)) for _ in range(3)] == [PART_SAMPLES] * 3
            # The thread is within the fourth part of the first.
            await asyncio.to_thread(wait_until, lambda: gated.begun == ["first"] * 4)
            with worker.speak(order(gated, "second")) as second:
                gated.gate.release(2)
                await anext(second)
        assert gated.made == ["first"] * 4 + ["second"]

    asyncio.run(listen())


def test_the_speech_that_would_first_be_silent_is_next(gated: GatedVoice, worker: SpeechWorker) -> None:
    async def listen() -> None:
        with worker.speak(order(gated, "first")) as first, worker.speak(order(gated, "second")) as second:
            gated.gate.release(8)
            for _ in range(4):
                await anext(first)
                await anext(second)
        # By turns, but for the part that was being made when a speech came.
        assert sorted(gated.made[:8]) == ["first"] * 4 + ["second"] * 4
        assert gated.made[:2] == ["first", "second"]

    asyncio.run(listen())


def test_a_speech_pauses_while_its_client_does_not_read(gated: GatedVoice, worker: SpeechWorker) -> None:
    async def listen() -> None:
        with worker.speak(order(gated, "slow")) as slow:
            gated.gate.release(10 * MAX_UNREAD_PARTS)
            await asyncio.to_thread(wait_until, lambda: not slow.can_advance)
            with worker.speak(order(gated, "quick")) as quick:
                await anext(quick)
            assert gated.made.count("slow") <= MAX_UNREAD_PARTS + 2
            for _ in range(2 * MAX_UNREAD_PARTS):
                await anext(slow)

    asyncio.run(listen())


def test_waiting_orders_that_fill_a_batch_are_opened_together(
    gated: GatedVoice, capsys: pytest.CaptureFixture[str]
) -> None:
    gated.parts, batching = 1, SpeechWorker(8, ServerMetrics(), batch=2)

    async def listen(text: str) -> int:
        with batching.speak(order(gated, text)) as speech:
            return len([part async for part in speech])

    async def listen_to_all() -> list[int | BaseException]:
        alone = asyncio.create_task(listen("alone"))
        # The thread waits within the first one, which had no other beside it, while the others come.
        await asyncio.to_thread(wait_until, lambda: gated.opened == [["alone"]])
        others = [asyncio.create_task(listen(text)) for text in ("a", "b", "bad", "c", "d", "crash", "e")]
        await asyncio.sleep(0)
        gated.gate.release(9)
        return await asyncio.gather(alone, *others, return_exceptions=True)

    heard = asyncio.run(listen_to_all())
    batching.stop()
    assert [type(found) for found in heard] == [int, int, int, TextError, int, int, RequestError, int]
    # The batch of "bad" and "c" failed: "bad" has its own error, and "c" another batch.
    assert gated.opened == [["alone"], ["a", "b"], ["c", "d"], ["e"]]
    assert capsys.readouterr().err.splitlines() == [
        "error: 2 requests together, now one by one: RuntimeError: a fault of the code",
        "error: RuntimeError: a fault of the code",
    ]


def test_errors_reach_the_listener_and_the_next_speech_goes_on(gated: GatedVoice, worker: SpeechWorker) -> None:
    async def listen(text: str) -> list[np.ndarray]:
        with worker.speak(order(gated, text)) as speech:
            return [part async for part in speech]

    with pytest.raises(TextError, match="say it otherwise"):
        asyncio.run(listen("bad"))
    with pytest.raises(RequestError) as failed:
        asyncio.run(listen("crash"))
    assert failed.value.status == 500
    gated.parts = 2
    gated.gate.release(2)
    assert len(asyncio.run(listen("good"))) == 2


def test_the_limit_counts_open_speeches_alone(gated: GatedVoice, worker: SpeechWorker) -> None:
    async def fill() -> None:
        with ExitStack() as speeches:
            for text in "abcd":
                speeches.enter_context(worker.speak(order(gated, text)))
            with (
                pytest.raises(RequestError, match="4 requests are being spoken") as refused,
                worker.speak(order(gated, "e")),
            ):
                pass
        assert refused.value.status == 429
        assert refused.value.retry_seconds >= 1
        with worker.speak(order(gated, "f")):
            pass

    asyncio.run(fill())


def test_a_text_goes_on_past_the_limit_and_its_listener_has_the_sound_before(
    gated: GatedVoice, worker: SpeechWorker
) -> None:
    gated.parts = 1

    async def fill() -> None:
        with worker.speak(order(gated, "first")) as first:
            gated.gate.release()
            assert [len(part) async for part in first] == [PART_SAMPLES]
        with ExitStack() as speeches:
            for text in "abcd":
                speeches.enter_context(worker.speak(order(gated, text)))
            second = speeches.enter_context(worker.speak(order(gated, "second"), first))
            assert second.due == max(second.arrived, first.due)

    asyncio.run(fill())
