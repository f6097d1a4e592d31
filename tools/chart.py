"""Write what deploy/helm/voda says of its values: values.yaml, and the table in its README.

values.schema.json is the one source: of each value its default and its description; its part on the settings of a pool
is made of the record that voda reads them with. A test holds them together.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from voda.app.kubernetes.options import POOL_FIELDS
from voda.domain.settings import Settings

CHART = Path(__file__).resolve().parent.parent / "deploy" / "helm" / "voda"
_BEGIN, _END = "<!-- values: made by `make chart` -->", "<!-- end of values -->"
_HEAD = """\
# Made by `make chart` from values.schema.json, which checks whatever you set.
"""
_WIDTH = 118
_TOLD = ("type", "minimum", "maximum", "description")
Schema = Mapping[str, Any]


def main() -> None:
    """Write the files."""
    found = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    found["properties"]["settings"]["properties"]["pools"]["additionalProperties"] = pool_schema()
    (CHART / "values.schema.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", "utf-8")
    (CHART / "values.yaml").write_text(values_yaml(), "utf-8")
    readme = CHART / "README.md"
    readme.write_text(with_table(readme.read_text("utf-8")), "utf-8")


def schema() -> Schema:
    """Return the schema of the chart's values."""
    found: Schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return found


def pool_schema() -> Schema:
    """Return the schema of one pool's settings: types, bounds and texts of the record's."""
    told = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    fields = {
        field: {key: one for key, one in told[name].items() if key in _TOLD} for field, name in POOL_FIELDS.items()
    }
    return {"type": "object", "additionalProperties": False, "properties": fields}


def values_yaml() -> str:
    """Return the text of values.yaml: every value with its default, below its description."""
    return _HEAD + "".join(_block(schema(), 0))


def with_table(readme: str) -> str:
    """Return the text of the README with the table of all values in its place."""
    before, _, rest = readme.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = [f"| `{path}` | {_shown(value)} | {value['description']} |" for path, value in leaves(schema())]
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
    return f"{before}{_BEGIN}\n\n{table}\n\n{_END}{after}"


def leaves(part: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield each value that can be set, with its path; such as image.tag."""
    for name, value in part["properties"].items():
        if "properties" in value:
            yield from leaves(value, f"{path}{name}.")
        elif "description" in value:
            yield f"{path}{name}", value


def _block(part: Schema, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, value in part["properties"].items():
        if "description" not in value:
            continue
        if not depth:
            yield "\n"
        text = textwrap.wrap(value["description"], _WIDTH - len(indent), break_on_hyphens=False)
        yield from (f"{indent}# {line}\n" for line in text)
        if "properties" in value and "default" not in value:
            yield f"{indent}{name}:\n"
            yield from _block(value, depth + 1)
        else:
            # JSON is YAML.
            yield f"{indent}{name}: {json.dumps(value.get('default'))}\n"


def _shown(value: Schema) -> str:
    return f"`{json.dumps(value['default'])}`" if "default" in value else ""


if __name__ == "__main__":
    main()
