"""Says why a report of a job is not believed."""

from voda.projections.learning import JobMeasurements


def doubt_text(own: JobMeasurements | None) -> str:
    """Return why the last report of a live job is not believed, one sentence; empty: it is."""
    if own is None or (why := own.doubt) is None:
        return ""
    said, known = f"{why.reported:g}", f"{why.expected:g}"
    match why.kind:
        case "beyond":
            reason = f"it says {said} epochs done, and the job has {known}"
        case "over":
            reason = f"it says {said} epochs done, of an epoch that is over: {known} were done before"
        case "fell":
            reason = f"it says {said} epochs done, fewer than the {known} before, and no worker has changed since"
        case "size":
            reason = f"it is of {said} workers, and the job has {known}"
        case "clock":
            reason = f"its last epoch took {said} s by the program's clock, and it has run for {known} s"
    return f"the last report is not believed: {reason}"
