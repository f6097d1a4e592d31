"""Telemetry that keeps what it takes, for a test to look at."""

from voda.metrics import Counter, Gauge, Histogram, Metric, Telemetry


class RecordingTelemetry(Telemetry):
    """Keeps every measurement in order."""

    def __init__(self) -> None:
        self.counted: list[tuple[Metric, tuple[str, ...], float]] = []
        self.observed: list[tuple[Metric, tuple[str, ...], float]] = []
        self.values: list[tuple[Metric, tuple[str, ...], float]] = []

    def count(self, counter: Counter, *labels: str, by: float = 1) -> None:
        """See Telemetry.count."""
        self.counted.append((counter, labels, by))

    def observe(self, histogram: Histogram, seconds: float, *labels: str) -> None:
        """See Telemetry.observe."""
        self.observed.append((histogram, labels, seconds))

    def set(self, gauge: Gauge, value: float, *labels: str) -> None:
        """See Telemetry.set."""
        self.values.append((gauge, labels, value))

    def counts(self, counter: Counter) -> list[tuple[str, ...]]:
        """Return the labels with which a counter was counted."""
        return [labels for metric, labels, _ in self.counted if metric is counter]

    def spans(self, histogram: Histogram) -> list[tuple[str, ...]]:
        """Return the labels with which a histogram was fed."""
        return [labels for metric, labels, _ in self.observed if metric is histogram]

    def settings(self, gauge: Gauge) -> list[float]:
        """Return the values that a gauge was set to."""
        return [value for metric, _, value in self.values if metric is gauge]
