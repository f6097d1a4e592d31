"""Writes a manifest as YAML for people, which reads back the same."""

from collections.abc import Mapping
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes lists of a command in a line, and quotes each text that any YAML reader could take for something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = (
        text.isascii() and text[:1].isalpha() and text.replace("-", "").replace("/", "").replace(".", "").isalnum()
    )
    is_plain = is_plain and text.lower() not in ("y", "n", "yes", "no", "true", "false", "on", "off", "null")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


def _list_node(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    is_flat = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_flat)


_Dumper.add_representer(str, _text_node)
_Dumper.add_representer(list, _list_node)


def manifest_yaml(manifest: Mapping[str, Any]) -> str:
    """Return a manifest as YAML that reads back the same."""
    return str(yaml.dump({**manifest}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))
