"""Load a running `xtts serve` with clients that speak texts of all lengths; print JSON.

    xtts serve --voice runs/first --vocoder runs/vocoder &
    python benchmarks/serve_load.py --url http://127.0.0.1:8000 --clients 50 --minutes 10

Each client sends one request after the other, reads the sound as it comes, and after a 429 waits as it is told.
Figures: requests by outcome, p50 and p95 of the time to the first sound, seconds of sound per second, and the memory
of the server after its first minute (or a tenth of the time) and at the end. First requests without other clients give
the time without load.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter

import httpx2

TEXT = "the quick brown fox jumps over a lazy dog and then it sleeps in the sun for an hour"
MOST_WORDS = 120
ALONE_REQUESTS = 10
PCM_BYTES_PER_SECOND = 48_000


class Figures:
    """What the clients have seen."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.first_sound_ms: list[float] = []
        self.sound_bytes = 0


def draw_text(draws: random.Random) -> str:
    """Return a text of one word to MOST_WORDS, short ones more often, in sentences of ten."""
    count = max(1, round(MOST_WORDS ** draws.random()))
    words = draws.choices(TEXT.split(), k=count)
    return ". ".join(" ".join(words[start : start + 10]) for start in range(0, count, 10)) + "."


async def speak(client: httpx2.AsyncClient, text: str, figures: Figures) -> float:
    """Send a request and read its sound; return the seconds to wait before the next one."""
    start, first = time.perf_counter(), None
    try:
        body = {"input": text, "response_format": "pcm"}
        async with client.stream("POST", "/v1/audio/speech", json=body) as answer:
            if answer.status_code != httpx2.codes.OK:
                figures.outcomes[str(answer.status_code)] += 1
                return float(answer.headers["retry-after"]) if answer.status_code == 429 else 1.0
            async for part in answer.aiter_bytes():
                first = first or time.perf_counter() - start
                figures.sound_bytes += len(part)
    except httpx2.HTTPError as error:
        figures.outcomes[type(error).__name__] += 1
        return 1.0
    figures.outcomes["200"] += 1
    figures.first_sound_ms.append(1_000 * (first or 0.0))
    return 0.0


async def memory_bytes(client: httpx2.AsyncClient) -> int:
    """Return the server's resident memory."""
    for line in (await client.get("/metrics")).text.splitlines():
        if line.startswith("process_resident_memory_bytes "):
            return int(float(line.split()[1]))
    raise SystemExit("/metrics: no process_resident_memory_bytes; expected xtts serve on Linux")


def percentile(values: list[float], share: float) -> float:
    """Return the value at a share of the sorted values."""
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 1) if values else float("nan")


async def load(url: str, token: str, clients: int, seconds: float) -> dict[str, object]:
    """Run the clients and return the figures."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limits = httpx2.Limits(max_connections=clients + 1)
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=600.0, limits=limits) as client:
        alone, loaded, draws = Figures(), Figures(), random.Random(0)  # noqa: S311 (reproducible load, no secret)
        for _ in range(ALONE_REQUESTS):
            await speak(client, TEXT, alone)
        begun = time.monotonic()
        end = begun + seconds

        async def be_a_client() -> None:
            while (left := end - time.monotonic()) > 0.0:
                wanted_wait = await speak(client, draw_text(draws), loaded)
                await asyncio.sleep(min(wanted_wait, left))

        working = [asyncio.create_task(be_a_client()) for _ in range(clients)]
        await asyncio.sleep(min(60.0, seconds / 10))
        early_bytes = await memory_bytes(client)
        await asyncio.sleep(max(0.0, end - time.monotonic()))
        late_bytes = await memory_bytes(client)
        await asyncio.gather(*working)
        # The last answers end later.
        loaded_seconds = time.monotonic() - begun
    return {
        "outcomes": dict(loaded.outcomes),
        "alone_first_sound_ms": {
            "p50": percentile(alone.first_sound_ms, 0.5),
            "p95": percentile(alone.first_sound_ms, 0.95),
        },
        "first_sound_ms": {
            "p50": percentile(loaded.first_sound_ms, 0.5),
            "p95": percentile(loaded.first_sound_ms, 0.95),
        },
        "times_real_time": round(loaded.sound_bytes / PCM_BYTES_PER_SECOND / loaded_seconds, 2),
        "memory_mib": {"early": early_bytes >> 20, "end": late_bytes >> 20},
        "memory_growth": round(late_bytes / early_bytes - 1, 4),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", default="")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(load(options.url, options.token, options.clients, 60 * options.minutes))))


if __name__ == "__main__":
    main()
