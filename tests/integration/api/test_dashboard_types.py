"""What the page takes records for is what the API's document says that they are."""

import re
from pathlib import Path
from typing import Any

from tests.service import a_service

TYPES = Path(__file__).parents[3] / "web" / "src" / "api" / "types.ts"
INTERFACE = re.compile(r"export interface (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"^  (\w+): ([^;]+);", re.MULTILINE)
OF_JSON = {"integer": "number"}
SCALARS = {"number", "string", "boolean", "null"}
Json = dict[str, Any]


async def test_types_of_the_page_when_compared_with_the_document_have_its_fields_and_their_types() -> None:
    async with a_service() as service:
        schemas = (await service.ask("GET", "/openapi.json")).json()["components"]["schemas"]
    records = {
        name.removesuffix("View"): dict(FIELD.findall(body))
        for name, body in INTERFACE.findall(TYPES.read_text("utf-8"))
    }
    assert records.keys() - schemas.keys() == set()
    assert "MomentJob" in records
    for name, fields in records.items():
        properties = schemas[name]["properties"]
        assert fields.keys() - properties.keys() == set(), name
        wanted = {field: of_schema(properties[field], schemas) for field in fields}
        assert {field: of_type(said) for field, said in fields.items()} == wanted, name


def of_type(said: str) -> set[str]:
    """Return what JSON a type of TypeScript stands for."""
    return {one for part in said.split(" | ") for one in _of_part(part)}


def _of_part(part: str) -> set[str]:
    if part.endswith("[]"):
        return {"array"}
    if part == "Instant":
        return {"string"}
    if part.startswith('"'):
        return {"string"}
    return {part} if part in SCALARS else {"object"}


def of_schema(schema: Json, schemas: Json) -> set[str]:
    """Return what JSON a schema lets through."""
    if "$ref" in schema:
        return of_schema(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return {one for each in schema[several] for one in of_schema(each, schemas)}
    if "enum" in schema and "type" not in schema:
        return {"null" if each is None else "string" for each in schema["enum"]}
    said = schema["type"]
    return {OF_JSON.get(each, each) for each in ([said] if isinstance(said, str) else said)}
