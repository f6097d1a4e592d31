"""What a leader with nothing to do costs the API server."""

import asyncio
import re
import ssl
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kube.options import Options
from benchmarks.kube.plane import control_plane
from benchmarks.kube.replica import serving
from benchmarks.kube.seeding import add_nodes, nodes
from benchmarks.kube.shares import Shares
from benchmarks.table import Row
from tests.kube.client import Client
from tests.kube.control_plane import ADMIN, ControlPlane

TITLE = "an idle leader, 100 nodes, no jobs"
_NODES = 100
_SPAN_S = 60.0
_SETTLE_S = 5.0
_COUNTED = re.compile(r"apiserver_request_total\{(.*?)\} (\S+)")
_LABEL = re.compile(r'(\w+)="(.*?)"')


async def run(options: Options) -> Sequence[Row]:
    """Return requests per second, less those that the API server makes of itself."""
    span_s = max(5.0, _SPAN_S * options.scale)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder, control_plane() as plane:
        async with Client(plane) as client:
            await add_nodes(client, nodes(_NODES))
        alone = await _asked(plane, span_s)
        with serving(plane, Path(folder) / "one", str(Path(folder) / "voda.db")) as replica:
            await replica.until_leads()
            await asyncio.sleep(_SETTLE_S)
            shares = Shares(plane, [replica], rest="this benchmark")
            asked = await _asked(plane, span_s)
            voda_s = shares.voda_s()
    voda = {what: asked[what] - alone[what] for what in asked if asked[what] > alone[what]}
    rows = [Row(what="requests of an idle leader, all", figure=sum(voda.values()) / span_s, unit="/s")]
    rows += [
        Row(what=f"of that, {what}", figure=requests / span_s, unit="/s")
        for what, requests in sorted(voda.items(), key=lambda item: -item[1])
    ]
    return [*rows, Row(what="CPU: voda", figure=100 * voda_s / span_s, unit="% of a core")]


async def _asked(plane: ControlPlane, span_s: float) -> Counter[str]:
    """Return how often the API server was asked within a span: by verb and resource."""
    before = await asyncio.to_thread(counted, plane)
    await asyncio.sleep(span_s)
    return await asyncio.to_thread(counted, plane) - before


def counted(plane: ControlPlane) -> Counter[str]:
    """Return how often the API server was asked so far, by verb and resource."""
    """Return how often the API server was asked so far, by verb and resource."""
    trusting = ssl.create_default_context(cafile=str(plane.certificate))
    trusting.check_hostname = False
    request = urllib.request.Request(f"{plane.url}/metrics", headers={"Authorization": f"Bearer {ADMIN}"})
    with urllib.request.urlopen(request, timeout=10.0, context=trusting) as answer:
        text = answer.read().decode()
    requests: Counter[str] = Counter()
    for labels, figure in _COUNTED.findall(text):
        named = dict(_LABEL.findall(labels))
        if named.get("resource"):
            requests[f"{named['verb']} {named['resource']}"] += int(float(figure))
    return requests
