"""Whatever is sent as a manifest: it is answered soon, in little memory, by the job or by one sentence."""

import http.client
import itertools
import json
import re
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.manifests import a_torch_job, an_mpi_job
from tests.served import served
from tests.unit.manifests.test_any_manifest import changed, paths_of
from voda.kinds.base import FieldWarning
from voda.manifests.local_warnings import local_warnings, refuse_unrunnable
from voda.manifests.parse import ParsedManifest

_NAME = "digits-name"
"""Stands for one that no job has had."""
_ANSWERED_S = 20.0
"""Many times what the slowest takes on a machine that is busy."""
_MOST_BYTES = 400_000_000
"""At once. A body may have a megabyte, a thousandth of which is enough to ask for more than there is."""
_LONG = 10_000
_REFUSED = (400, 409, 413, 415, 422, 429)
_GUTS = re.compile(r"Traceback|File \"|<class|object at 0x|msgspec|KeyError|Errno")
_TEXTS = (
    *("", " ", "\t", "\n", "\0", "\ud800", "\udfff", "\u202e", "é" * _LONG, "x" * _LONG, "9" * 5_000, "-1", "1e999"),
    *("NaN", "0x10", "$", "$(", "$(A", "$$" * _LONG, "$(" * _LONG, "$(A0)" * 2_000, "$(NP)", "../../etc", "a/b:c@d"),
)
_NUMBERS = (0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, -1e308)
_KEYS = ("name", "value", "valueFrom", "spec", "Launcher", "Worker", "x" * _LONG, "", "\0", "\ud800", "a.b[0]")
_NUMBERS_OF_JOBS = itertools.count()
_ENV_NAMES = ("NP", "NUM_PROC", "MIN_NUM_PROC", "EPOCHS", "JOB_NAME", "A0", "A=B", "x" * _LONG)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, after how long, and how much more memory than ever before was in use meanwhile."""

    status: int
    body: bytes
    took_s: float
    bytes_used: int


Send = Callable[[str, bytes], Reply]


@pytest.fixture(scope="module")
def send(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Send]:
    """Serve the API with what one machine adds to it, and return what sends it a manifest."""
    fields = {"warnings": on_one_machine, "jobs_per_user": 10_000}
    with served(tmp_path_factory.mktemp("home"), **fields) as server:
        address = urlsplit(server.service.url)

        def send(path: str, body: bytes) -> Reply:
            connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=4 * _ANSWERED_S)
            before, began = most_memory(), time.perf_counter()
            try:
                connection.request("POST" if body else "GET", path, body or None)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            took_s = time.perf_counter() - began
            return Reply(answer.status, content, took_s, most_memory() - before)

        yield send


def most_memory() -> int:
    """Return the most bytes of memory that this process ever had, the server's thread included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def on_one_machine(parsed: ParsedManifest) -> Sequence[FieldWarning]:
    """Return what `voda up` answers besides."""
    refuse_unrunnable(parsed)
    return tuple(local_warnings(parsed))


def chain(links: int, times: int) -> dict[str, str]:
    """Return variables each of which repeats the one before."""
    return {"A0": "x" * 100, **{f"A{link}": f"$(A{link - 1})" * times for link in range(1, links)}}


_ENVS = st.one_of(
    st.builds(
        lambda links, times, name: {**chain(links, times), name: f"$(A{links - 1})"},
        st.integers(2, 40),
        st.integers(1, 3_000),
        st.sampled_from(_ENV_NAMES),
    ),
    st.builds(lambda name: {name: f"$({name})" * 1_000}, st.sampled_from(_ENV_NAMES)),
    st.dictionaries(st.sampled_from(_ENV_NAMES), st.sampled_from(_TEXTS), max_size=4),
    st.sampled_from([{f"V{place}": "$(V0)" for place in range(most)} for most in (10, 1_000)]),
)
_LEAVES = st.none() | st.booleans() | st.sampled_from(_NUMBERS) | st.sampled_from(_TEXTS)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3),
    max_leaves=6,
)
_DEEP = st.builds(
    lambda pair, depth: (pair[0] * depth + "1" + pair[1] * depth).encode(),
    st.sampled_from([('{"a":', "}"), ("[", "]"), ("a: {", "}"), ("- ", ""), ("? ", "")]),
    st.integers(1, 100_000),
)
_TEXTS_OF_BODIES = st.one_of(
    _DEEP,
    st.binary(max_size=200),
    st.text("{}[]:,-?&*!|>'\"%@` \n#ab<1.~\t\\$()", max_size=80).map(str.encode),
    st.builds(
        lambda levels, width: "\n".join(
            [
                f"a0: &a0 [{'x' * 1_000}]",
                *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)),
            ]
        ).encode(),
        st.integers(1, 12),
        st.integers(1, 2_000),
    ),
    st.builds(
        lambda times: f"a: &a '{'x' * 900_000}'\nb: [{','.join(['*a'] * times)}]".encode(), st.integers(1, 19_000)
    ),
)


@st.composite
def manifests(draw: st.DrawFn) -> bytes:
    """Draw a manifest of which some values are what no user would write."""
    job = draw(st.sampled_from([an_mpi_job, a_torch_job]))
    manifest: dict[str, Any] = job(env=draw(_ENVS) if draw(st.booleans()) else {"NP": "2"})
    manifest["metadata"]["name"] = _NAME
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from(paths_of(manifest)[:200]))
        manifest = changed(manifest, path, draw(_TREES))
    text = json.dumps(manifest).encode()
    # JSON is YAML too, and read by another reader.
    return b"# yaml\n" + text if draw(st.booleans()) else text


def ask(send: Send, path: str, body: bytes = b"") -> tuple[int, Any]:
    """Return the status and the value of an answer that came soon and cost little."""
    reply = send(path, body)
    assert reply.took_s < _ANSWERED_S
    assert reply.bytes_used < _MOST_BYTES
    return reply.status, json.loads(reply.body)


def refuse_or_take(send: Send, body: bytes, *, is_dry_run: bool) -> None:
    """Send a body as a manifest, look at the job if there is one, and check all answers."""
    body = body.replace(_NAME.encode(), f"digits-{next(_NUMBERS_OF_JOBS)}".encode()) or b" "
    status, value = ask(send, f"/api/v1/jobs?dry_run={str(is_dry_run).lower()}", body)
    if status not in (200, 201):
        assert status in _REFUSED, value
        assert is_sentence(value["detail"]), value["detail"]
        return
    assert all(warning["field"] and is_sentence(warning["message"]) for warning in value["warnings"])
    if not is_dry_run:
        path = f"/api/v1/jobs/{value['job']['job_id']}"
        for looked_at in (path, f"{path}/manifest", f"{path}/explain"):
            assert ask(send, looked_at)[0] == 200


def is_sentence(text: str) -> bool:
    """Say whether a text is one line that a user can read to its end, and shows nothing of the inside."""
    return 0 < len(text) <= 700 and text.isprintable() and not _GUTS.search(text)


def of_variables(env: Mapping[str, str]) -> bytes:
    return json.dumps(an_mpi_job(env=env, metadata={"name": _NAME})).encode()


@pytest.mark.parametrize(
    "body",
    [
        of_variables({f"V{place}": "" for place in range(10_000)}),
        of_variables(dict.fromkeys((f"V{place}" for place in range(6_000)), "$(V0)")),
        of_variables({"A": "$(" * 450_000}),
        of_variables({"A": "$$" * 450_000}),
        of_variables({"A" * 900_000: "1"}),
        of_variables({"A": "x" * 120_000, **{f"B{place}": "$(A)" for place in range(3_000)}}),
        of_variables({"A": "\u00e9" * 60_000, **{f"B{place}": "$(A)" * 5_000 for place in range(25)}}),
        of_variables({}).replace(
            b'"spec"', b'"a": &a "' + b"x" * 900_000 + b'", "b": [' + b"*a," * 18_000 + b'], "spec"', 1
        ),
    ],
    ids=["many", "references", "open", "dollars", "long name", "long values", "characters", "aliases"],
)
def test_manifest_when_it_is_as_large_as_may_be_is_answered_soon_and_in_little_memory(send: Send, body: bytes) -> None:
    refuse_or_take(send, body, is_dry_run=False)


@pytest.mark.slow
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=manifests() | _TEXTS_OF_BODIES, is_dry_run=st.booleans())
def test_manifest_when_it_is_hostile_is_answered_soon_and_in_little_memory(
    send: Send, body: bytes, is_dry_run: bool
) -> None:
    refuse_or_take(send, body, is_dry_run=is_dry_run)


@pytest.mark.parametrize("name", ["NUM_PROC", "OTHER"])
@pytest.mark.parametrize("is_dry_run", [True, False])
def test_manifest_when_its_variables_expand_to_terabytes_is_refused_with_the_field(
    send: Send, name: str, is_dry_run: bool
) -> None:
    manifest: Mapping[str, Any] = an_mpi_job(env={**chain(12, 10), name: "$(A9)"})
    reply = send(f"/api/v1/jobs?dry_run={str(is_dry_run).lower()}", json.dumps(manifest).encode())
    problem = json.loads(reply.body)
    field = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].env[4].value"
    assert (reply.status, problem["field"]) == (422, field)
    assert problem["detail"] == (
        f"{field}: expected 131072 bytes or less once $(VAR) is expanded, which is what Linux takes, got 1000004"
    )
