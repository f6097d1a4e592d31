"""The OpenAPI document and the page that shows it."""

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from tests.service import Service, a_service
from voda.api.openapi import EXAMPLES
from voda.api.operation import PUBLIC
from voda.api.server import operations


async def document(service: Service) -> dict[str, Any]:
    answer = await service.ask("GET", "/openapi.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    found: dict[str, Any] = answer.json()
    return found


def every(key: str, value: Any) -> Iterator[Any]:
    """Yield whatever stands under the key, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        if name == key:
            yield item
        yield from every(key, item)


async def test_document_when_asked_for_then_is_openapi_3_1() -> None:
    async with a_service() as service:
        found = await document(service)
    assert [str(error) for error in OPENAPI_31_VALIDATOR.iter_errors(found)] == []
    refs = set(every("$ref", found["paths"])) | set(every("$ref", found["components"]))
    assert {ref.rpartition("/")[2] for ref in refs} <= set(found["components"]["schemas"])


async def test_document_when_compared_with_the_router_then_has_every_operation() -> None:
    async with a_service() as service:
        found = await document(service)
        known = operations(service.backend)
    shown = {
        (method.upper(), path, told["operationId"])
        for path, methods in found["paths"].items()
        for method, told in methods.items()
    }
    plain = {(one.method, re.sub(r":[^{}]*(\{[^{}]*\})?[^{}]*\}", "}", one.path), one.name) for one in known}
    assert shown == plain
    assert {tag["name"] for tag in found["tags"]} == {one.tag for one in known}
    for one in known:
        told = next(
            told for methods in found["paths"].values() for told in methods.values() if told["operationId"] == one.name
        )
        assert told["security"] == ([] if one.roles == PUBLIC else [{"bearer": []}])
        assert ("401" in told["responses"]) == (one.roles != PUBLIC or 401 in one.problems)


async def test_document_when_records_have_bounds_times_and_words_then_tells_them() -> None:
    async with a_service() as service:
        schemas = (await document(service))["components"]["schemas"]
    change = schemas["SettingsChange"]["properties"]
    assert (change["ratelimit_s"]["minimum"], change["ratelimit_s"]["maximum"]) == (0, 86400)
    assert "elastic-tiresias" in change["policy"]["enum"]
    assert schemas["Event"]["properties"]["recorded_at"]["format"] == "date-time"
    assert schemas["Plan"]["properties"]["changed"]["description"].startswith("Jobs that this plan placed otherwise")
    job = schemas["Job"]["properties"]
    assert "a plain program, `launcher` says" in job["kind"]["description"]
    assert "program: nothing else does" in job["launcher"]["description"]


async def test_document_when_an_operation_can_fail_then_tells_what_that_means() -> None:
    async with a_service() as service:
        found = await document(service)
    operations = [told for methods in found["paths"].values() for told in methods.values()]
    problems = {code: told for one in operations for code, told in one["responses"].items() if code >= "400"}
    assert all(len(told["description"].split()) > 4 for told in problems.values()), problems
    assert {code: list(told["headers"]) for code, told in problems.items() if "headers" in told} == {
        "401": ["WWW-Authenticate"],
        "426": ["Upgrade"],
        "429": ["Retry-After"],
        "503": ["Retry-After"],
        "507": ["Retry-After"],
    }
    # The standard has readers ignore parameters of these names.
    named = {parameter["name"] for one in operations for parameter in one["parameters"]}
    assert not named & {"Accept", "Content-Type", "Authorization"}


async def test_document_when_unchanged_then_is_not_sent_again() -> None:
    async with a_service() as service:
        etag = (await service.ask("GET", "/openapi.json")).headers["ETag"]
        assert (await service.ask("GET", "/openapi.json", headers={"If-None-Match": etag})).status == 304


async def test_document_when_it_has_examples_then_they_belong_to_operations() -> None:
    async with a_service() as service:
        found = await document(service)
    with_examples = {
        told["operationId"]
        for methods in found["paths"].values()
        for told in methods.values()
        if list(every("examples", told))
    }
    assert with_examples == set(EXAMPLES)


@pytest.mark.parametrize("media_type", list(EXAMPLES["submitJob"]))
async def test_document_when_an_example_is_submitted_then_is_taken(media_type: str) -> None:
    async with a_service() as service:
        for example in EXAMPLES["submitJob"][media_type].values():
            answer = await service.ask(
                "POST", "/api/v1/jobs?dry_run=true", body=example["value"], headers={"Content-Type": media_type}
            )
            assert answer.status in (200, 201), answer.body


async def test_page_when_opened_then_may_run_its_own_script_and_needs_nothing_from_elsewhere() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/docs")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["Content-Security-Policy"]
    for tag in (b"script", b"style"):
        (inside,) = re.findall(b"<%b>(.*?)</%b>" % (tag, tag), answer.body, re.DOTALL)
        assert b64encode(sha256(inside).digest()).decode() in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.findall(
        rb"(?:src|href)=\"(?!/openapi\.json)[^\"]*\"|https?://|[ :]url\(|@import|innerHTML", answer.body
    )


async def test_document_has_the_parameters_of_policies_where_settings_are_shown_and_changed() -> None:
    async with a_service() as service:
        schemas = (await document(service))["components"]["schemas"]
    for name in ("Settings", "SettingsChange"):
        assert "demote_gpu_s" in schemas[name]["properties"]["parameters"]["properties"]["tiresias"]["properties"]
