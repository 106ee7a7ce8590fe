"""The figures of `/metrics`, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

FIRST_SOUND_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)


class ServerMetrics:
    """Counts of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "xtts_requests", "Requests by protocol and outcome.", ["protocol", "outcome"], registry=self.registry
        )
        self.first_sound_seconds = Histogram(
            "xtts_first_sound_seconds",
            "Time from a request to its first sound.",
            buckets=FIRST_SOUND_BUCKETS,
            registry=self.registry,
        )
        self.sound_seconds = Counter("xtts_sound_seconds", "Seconds of sound made.", registry=self.registry)
        self.changed_characters = Counter(
            "xtts_changed_characters",
            "Characters that the voice lacks, which were replaced or dropped.",
            ["voice"],
            registry=self.registry,
        )
        self.waiting = Gauge("xtts_open_requests", "Requests being spoken or waiting.", registry=self.registry)
