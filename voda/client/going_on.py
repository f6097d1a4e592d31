"""How an ended job goes on: in its folder, with its program as it is now, which is kept as at a submit."""

from pathlib import Path
from typing import Any

from voda import config
from voda.auth.callers import CallerView
from voda.client.connection import HttpCall
from voda.client.decoding import decode
from voda.client.documents import clear_old_code
from voda.client.http import HttpClient
from voda.programs.kept_code import NotKept, keep
from voda.programs.program_manifest import SCRIPT, WORKING_DIR
from voda.wire.jobs import JobView


def goes_on_query(http: HttpClient, path: str) -> dict[str, str]:
    """Return what the rerun of a job says to go on; `path` is that of the job.

    The program of a job that was submitted with --live, of another user's job and on another machine runs as it is at
    each start, and so does one that cannot be kept.
    """
    goes_on: dict[str, str] = {"goes_on": "true"}
    job = decode(http.ask_repeatedly(HttpCall(path=path)).body, JobView)
    if not http.target.is_here or not job.kept_script:
        return goes_on
    if decode(http.ask_repeatedly(HttpCall(path="/whoami")).body, CallerView).user != job.user:
        return goes_on
    manifest = decode(http.ask_repeatedly(HttpCall(path=f"{path}/manifest")).body, dict[str, Any])
    annotations = manifest["metadata"]["annotations"]
    script = Path(annotations.get(WORKING_DIR, ""), annotations.get(SCRIPT, ""))
    try:
        goes_on["kept_script"] = str(keep(script, config.code_folder()))
    except NotKept:
        return goes_on
    clear_old_code(http)
    return goes_on
