"""Colours that mean the same on the whole page: hues for kinds of jobs, shades for jobs, lines for runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from voda.simulator.report.run_summary import RunOutcome

# Hues that differ in lightness too, so that they differ for colour-blind eyes and in print.
_HUES = ("#4e79d9", "#f2a93b", "#e3655b", "#5bb8a8", "#8fbf4d", "#c583c9", "#8a63d2", "#7ec4ea", "#b07d56", "#9aa0a8")
_WHITE_IN_SHADE = (0.0, 0.22, 0.42)
_OTHER = len(_HUES) - 1

OCCUPANCY = (0x3F, 0x78, 0xD8)
"""Red, green and blue of the occupancy map."""

LINES_LIGHT = ("#1f5fbf", "#cf4a0c", "#2b8a3e", "#9c36b5", "#0b7285", "#c2255c", "#8a6100", "#495057")
LINES_DARK = ("#7db0ff", "#ff9c63", "#74d983", "#dd8af5", "#4fd0e3", "#ff8abb", "#e3b659", "#b6bdc5")
"""One per run; from the ninth on they begin again with other dashes."""


class JobColours:
    """A class of the style sheet for every job: the hue is its category, the shade differs between neighbours.

    The categories with the most GPU time get a hue each, the rest share grey. Where all jobs are of one category, each
    job has its hue.
    """

    def __init__(self, runs: Sequence[RunOutcome]) -> None:
        gpu_s = Counter[str]()
        self._category: dict[str, str] = {}
        for job in (job for run in runs for job in run.history.finished):
            gpu_s[job.category] += int(job.gpu_s)
            self._category.setdefault(job.job_id, job.category)
        names = [name for name, _ in gpu_s.most_common()]
        self.by_category = len(names) > 1
        hue_names = names if len(names) <= len(_HUES) else names[:_OTHER]
        self._hue: Mapping[str, int] = {name: hue for hue, name in enumerate(sorted(hue_names))}
        self._has_others = len(names) > len(hue_names)
        members = Counter[str]()
        self._number: dict[str, int] = {}
        for job_id, category in self._category.items():
            self._number[job_id] = members[category]
            members[category] += 1

    def class_of(self, job_id: str) -> str:
        """Return the job's class; a job that never ended is grey."""
        number = self._number.get(job_id, 0)
        if not self.by_category:
            return shade_class(number % _OTHER, number // _OTHER)
        return shade_class(self._hue.get(self._category.get(job_id, ""), _OTHER), number)

    def legend(self) -> Sequence[tuple[str, str]]:
        """Return (class, category) for each hue; empty where hues are not categories."""
        if not self.by_category:
            return ()
        entries = [(shade_class(hue, 0), name) for name, hue in self._hue.items()]
        return (*entries, (shade_class(_OTHER, 0), "others")) if self._has_others else entries


def shade_class(hue: int, shade: int) -> str:
    """Return the class of one shade of a hue."""
    return f"c{hue}{shade % len(_WHITE_IN_SHADE)}"


def line_class(run: int) -> str:
    """Return the class of the line that draws the run of that number."""
    count = len(LINES_LIGHT)
    return f"l{run % count}" if run < count else f"l{run % count} again"


def rules() -> Iterable[str]:
    """Yield the style sheet's rules for all of these classes."""
    for hue, colour in enumerate(_HUES):
        for shade, white in enumerate(_WHITE_IN_SHADE):
            yield f".c{hue}{shade}{{fill:{_mixed(colour, white)}}}"
    for run in range(len(LINES_LIGHT)):
        yield f".l{run}{{stroke:var(--line{run})}}"


def variables(lines: Sequence[str]) -> str:
    """Return the custom properties that give the lines their colours."""
    return "".join(f"--line{run}:{colour};" for run, colour in enumerate(lines))


def _mixed(colour: str, white: float) -> str:
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(channel + (255 - channel) * white):02x}" for channel in channels)
