"""A failing seed as a story that a person can read: what went wrong, what was asked, what the log says, in order.

Rule: nothing is told that did not happen; how it is run again stands at the end.
"""

from collections.abc import Iterator

from tests.dst.trial import Trial, Verdict

_MOST_LINES = 400
_QUIET = ("tail", "read")
"""Words of trace lines that tell nobody anything."""


def story(trial: Trial, verdict: Verdict, *, command: str) -> str:
    """Return the story of a broken rule.

    Args:
        trial: the shortest that is known.
        verdict: of it.
        command: runs the seed again.
    """
    return "\n".join([*_cast(trial), "", *_timeline(trial, verdict), "", f"BROKEN  {verdict.breach}", "", command])


def _cast(trial: Trial) -> Iterator[str]:
    setup = trial.setup
    pools = "; ".join(
        f"pool {pool}: " + ", ".join(f"{node} ({gpus} GPUs)" for node, gpus in nodes.items())
        for pool, nodes in setup.pools.items()
    )
    yield f"seed {setup.seed}: {setup.replicas} replicas; {pools}"
    yield f"what goes wrong ({len(setup.faults)}):"
    for fault in setup.faults:
        yield f"  {fault.at_s:>12.3f} s  {fault.kind} {fault.target}".rstrip() + _spans(fault.span_s, fault.share)
    yield f"what users do ({len(trial.acts)}):"
    for act in trial.acts:
        wish = ", ".join(f"{name} {value}" for name, value in act.wish.items())
        yield f"  {act.at_s:>12.3f} s  {act.kind} {act.job} {act.manner}".rstrip() + (f" ({wish})" if wish else "")


def _spans(span_s: float, share: float) -> str:
    told = f" for {span_s:g} s" if span_s else ""
    return told if share == 1.0 else f"{told}, share {share:g}"


def _timeline(trial: Trial, verdict: Verdict) -> Iterator[str]:
    yield f"what happened, up to {verdict.at_s:.3f} s:"
    lines = [line for line in verdict.trace if not any(word in line.split()[2:3] for word in _QUIET)]
    if len(lines) > _MOST_LINES:
        yield f"  ... {len(lines) - _MOST_LINES} lines before ..."
    yield from (f"  {line}" for line in lines[-_MOST_LINES:])
