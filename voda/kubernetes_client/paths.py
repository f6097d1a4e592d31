"""Where objects and their collections are on an API server.

Rule: whatever is in a namespace or a name, the path leads nowhere else.
"""

from urllib.parse import quote


def api_path(api_version: str, plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of an object; without a name of all in the namespace, without a namespace of all there are."""
    root = "/apis" if "/" in api_version else "/api"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}/{api_version}{within}/{plural}" + (f"/{quote(name, safe='')}" if name else "")
