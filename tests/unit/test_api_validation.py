"""What a person reads when a request is wrong."""

from __future__ import annotations

import gc
import json
import time
from enum import StrEnum
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, Field, ValidationError, field_validator

from api.downloads.requests import DownloadRequest
from api.http import parsing, validation
from api.http.models import Request
from api.http.problems import FieldProblem, RequestRejected
from api.session import SignInRequest
from api.tasks.requests import CreateTasksRequest


class Colour(StrEnum):
    """Something to choose from."""

    RED = "red"
    BLUE = "blue"


class Header(Request):
    """A nested object."""

    name: str = Field(min_length=1, max_length=5)
    text: str = Field(default="", validation_alias=AliasChoices("text", "value"))


class Sample(Request):
    """One field of each kind."""

    page_size: int = Field(default=250, ge=100, le=1000)
    retries: Annotated[int, Field(ge=0, le=9)] | None = None
    attempts: int = Field(default=1, ge=1)
    ratio: float = 1.0
    share: float = Field(default=1.0, gt=0, le=3600)
    weight: float = Field(default=1.0, gt=0)
    some: Literal[Colour.RED, Colour.BLUE] = Colour.RED
    name: str = Field(default="x", max_length=3)
    code: str = Field(default="ab", pattern="^[a-z]+$")
    reason: str = Field(default="why", min_length=3)
    pair: list[int] = Field(default=[1, 2], min_length=2)
    colour: Colour = Colour.RED
    kind: Literal["csv", "excel"] = "csv"
    flag: bool = False
    headers: list[Header] = Field(default=[], max_length=2)
    labels: dict[str, int] = Field(default={}, max_length=1)
    even: int = 2
    length: int = Field(default=1, validation_alias=AliasChoices("length", "size", "extent"))

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd; send an even number.")
        return value


def read(text: str) -> list[FieldProblem]:
    """The faults of a JSON body."""
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate_json(text, strict=True)
    return validation.describe_errors(caught.value, Sample)


CASES = [
    ('{"page_size": 50}', "page_size", "50 is outside 100–1000; choose a value in that range."),
    ('{"page_size": 5000}', "page_size", "5000 is outside 100–1000; choose a value in that range."),
    ('{"retries": 10}', "retries", "10 is outside 0–9; choose a value in that range."),
    ('{"attempts": 0}', "attempts", "0 is outside 1 or more; choose a value in that range."),
    ('{"share": 0}', "share", "0 is outside 0–3600 without 0; choose a value in that range."),
    ('{"share": 3601}', "share", "3601 is outside 0–3600 without 0; choose a value in that range."),
    ('{"weight": 0}', "weight", "0 is outside the numbers above 0; choose a value in that range."),
    ('{"some": "green"}', "some", "“green” is not one of 'red' or 'blue'; choose one of them."),
    ('{"page_size": "250"}', "page_size", "“250” is a string; send an integer, without quotes."),
    ('{"page_size": 2.5}', "page_size", "2.5 is not an integer; send an integer."),
    ('{"page_size": true}', "page_size", "true is not an integer; send an integer."),
    ('{"page_size": null}', "page_size", "null was sent where an integer belongs; send an integer."),
    ('{"page_size": []}', "page_size", "an array was sent where an integer belongs; send an integer."),
    ('{"ratio": "1"}', "ratio", "“1” is a string; send a number, without quotes."),
    ('{"flag": 1}', "flag", "a number was sent where true or false belongs; send true or false."),
    ('{"name": 7}', "name", "a number was sent where a string belongs; send a string."),
    ('{"name": "four"}', "name", "it has 4 characters; send 3 or less."),
    ('{"reason": "x"}', "reason", "it has 1 character; send 3 or more."),
    ('{"pair": [1]}', "pair", "it has 1 entry; send 2 or more."),
    ('{"code": "  "}', "code", "it is blank; write something."),
    ('{"code": "A1"}', "code", "“A1” does not have the form ^[a-z]+$; correct it."),
    ('{"colour": "green"}', "colour", "“green” is not one of 'red' or 'blue'; choose one of them."),
    ('{"kind": "pdf"}', "kind", "“pdf” is not one of 'csv' or 'excel'; choose one of them."),
    ('{"headers": {}}', "headers", "an object was sent where an array belongs; send an array."),
    ('{"headers": [{}]}', "headers[0].name", "this field is missing; add it."),
    ('{"headers": [{"name": ""}]}', "headers[0].name", "it has 0 characters; send 1–5."),
    ('{"headers": [{"name": "a", "nam": "b"}]}', "headers[0].nam", "there is no such field; did you mean name?"),
    (
        '{"headers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}',
        "headers",
        "it has 3 entries; send 2 or less.",
    ),
    ('{"labels": {"a": 1, "b": 2}}', "labels", "it has 2 entries; send 1 or less."),
    ('{"even": 3}', "even", "3 is odd; send an even number."),
    (
        '{"length": 1, "extent": 2}',
        "extent",
        "it is another name of length, which was sent, too; send one of length and size and extent.",
    ),
    (
        '{"headers": [{"name": "a", "value": "", "text": ""}]}',
        "headers[0].value",
        "it is another name of text, which was sent, too; send one of text and value.",
    ),
    ('{"pagesize": 250}', "pagesize", "there is no such field; did you mean page_size?"),
    ("[]", "", "an array was sent where an object belongs; send an object."),
]


@pytest.mark.parametrize(("text", "path", "message"), CASES)
def test_a_fault_is_one_clear_sentence(text: str, path: str, message: str) -> None:
    """The path names the field; the sentence says what was wrong and what to send."""
    assert read(text) == [FieldProblem(path=path, message=message)]


def test_all_faults_are_reported_at_once() -> None:
    """No second request is needed to learn what else is wrong."""
    faults = read('{"page_size": 1, "flag": "yes", "zzz": 1}')
    assert [fault.path for fault in faults] == ["page_size", "flag", "zzz"]


def test_an_unknown_field_far_from_any_lists_what_is_known() -> None:
    """Where no name is near, all of them are offered."""
    (fault,) = read('{"zzz": 1}')
    assert fault.message.startswith("there is no such field; remove it. Known fields are page_size, retries,")


def test_what_is_echoed_is_bounded() -> None:
    """A huge value or name does not come back whole."""
    (value,) = read(f'{{"kind": "{"x" * 10_000}"}}')
    (name,) = read(f'{{"{"y" * 10_000}": 1}}')
    assert len(value.message) < 200
    assert len(name.path) <= 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*Sample.model_fields, "other"]), JSON))
def test_every_fault_has_a_sentence(body: dict[str, object]) -> None:
    """Whatever is sent with one unknown field, every fault gets a path and a sentence that ends."""
    faults = read(json.dumps(body | {"unknown": 1}))
    assert "unknown" in {fault.path for fault in faults}
    assert all(fault.path and fault.message.endswith(".") for fault in faults)


_MANY = ",".join(f'"k{number}":1' for number in range(80_000))
_NULS = ",".join(['"\\u0000"'] * 100_000)
_UNKNOWN_OF_A_TASK = ",".join(f'"{number:x}":1' for number in range(100))


@pytest.mark.parametrize(
    ("text", "model", "listed", "left_out"),
    [
        (f"{{{_MANY}}}", SignInRequest, 100, "Another 79,901 are not listed."),
        (f'{{"headers":{{{_MANY}}}}}', DownloadRequest, 100, "Another 79,900 are"),
        (f"{{{_MANY}}}", DownloadRequest, 100, "are not listed."),
        (
            f'{{"task_list":[{",".join([f"{{{_UNKNOWN_OF_A_TASK}}}"] * 1_000)}]}}',
            CreateTasksRequest,
            100,
            "are not listed.",
        ),
        (f'{{{_MANY},"k79999":2}}', SignInRequest, 0, "more than once"),
        (f'{{"api_key":[{",".join(["[]"] * 340_000)}]}}', SignInRequest, 0, "110,000 arrays and objects"),
        (f'{{"api_key":[{_NULS}]}}', SignInRequest, 100, "Another 99,900 are not listed."),
        (f'{{"api_key":"{"[" * 1_000_000}"}}', SignInRequest, 1, "characters"),
        ('"' + '\\"' * 500_000 + "[" * 120_000 + "\\", SignInRequest, 0, "not JSON"),
    ],
    ids=["unknown", "map", "unknown-of-many", "tasks", "repeated", "containers", "texts", "brackets", "escapes"],
)
def test_a_body_of_one_megabyte_is_refused_in_a_fraction_of_a_second(
    text: str, model: type[Request], listed: int, left_out: str
) -> None:
    gc.disable()  # An API process collects seldom, and leaves out what was loaded at its start.
    started = time.process_time()
    with pytest.raises(RequestRejected, match=left_out) as refused:
        parsing.parse_json_text_strictly(text, model)
    seconds = time.process_time() - started
    gc.enable()
    assert seconds < 1.2, "at most 0.25 s on the machine that this was written on"
    assert len(refused.value.errors) == listed
    assert len(str(refused.value)) < 2_000
