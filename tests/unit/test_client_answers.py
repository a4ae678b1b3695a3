"""The clients take answers of a newer API: fields and values that they do not know, except states."""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, cast, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

import haulage
from api.http.openapi import STATES
from haulage.addresses import MessageWithModuleAnswers, Module, Topic
from haulage.enums import ExtensibleEnum
from haulage.models import Download

UNKNOWN = "of_a_later_version"
SERVERS = "haulage.address_module"
"""Its models are of the module protocol, where Haulage is the client."""
SAMPLES: Mapping[Any, Any] = {
    str: UNKNOWN,
    int: 1,
    float: 1.0,
    bool: True,
    datetime: "2026-01-02T03:04:05Z",
    Any: UNKNOWN,
    type(None): None,
}


def list_models() -> Iterator[type[BaseModel]]:
    """List the models of answers: those of requests refuse what they do not know."""
    for found in pkgutil.walk_packages(haulage.__path__, "haulage."):
        if not found.name.startswith(SERVERS):
            for _, model in inspect.getmembers(importlib.import_module(found.name), inspect.isclass):
                if model.__module__ != found.name or not issubclass(model, BaseModel):
                    continue
                if model.model_config.get("extra") != "forbid":
                    yield model


MODELS = list(list_models())


def build_answer(model: type[BaseModel]) -> dict[str, Any]:
    """Build an answer with every field of a model, and one that it does not know."""
    hints = typing.get_type_hints(model)
    return {name: build_value(hints[name], name) for name in model.model_fields} | {UNKNOWN: UNKNOWN}


def build_value(type_: Any, field: str) -> Any:
    """Build a value: of an enumeration one that does not exist, unless it is that of a state."""
    match get_origin(type_), get_args(type_):
        case None, _ if type_ in SAMPLES:
            return SAMPLES[type_]
        case None, _ if issubclass(type_, BaseModel):
            return build_answer(type_)
        case None, _ if issubclass(type_, Enum):
            # The keys of counts by state are states.
            is_state = field in STATES or not issubclass(type_, StrEnum) or type_.__name__.endswith("State")
            return next(iter(type_)).value if is_state else UNKNOWN
        case ((typing.Union | types.UnionType), args):
            return build_value(args[0], field)
        case origin, args if issubclass(origin, Mapping):
            return {build_value(args[0], field): build_value(args[1], field)}
        case _, args:
            return [build_value(args[0], field)]
    raise AssertionError(f"{field}: say here what an answer has for {type_}")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_an_answer_with_unknown_values_is_read(model: type[BaseModel]) -> None:
    """Each field has what was sent, and is sent on as it came."""
    answer = build_answer(model)
    read = model.model_validate(answer)
    assert model.model_validate_json(read.model_dump_json()) == read
    assert UNKNOWN not in read.model_dump()


def test_every_client_has_models_here() -> None:
    """So that none is left out."""
    assert {model.__module__ for model in MODELS} == {
        *("haulage.models", "haulage.addresses.models", "haulage.orders.models"),
        *("haulage.tasks.models", "haulage.transfers.models"),
    }


def test_a_model_has_the_values_of_the_answer() -> None:
    """Known ones are the constants, others texts."""
    read = MessageWithModuleAnswers.model_validate(build_answer(MessageWithModuleAnswers))
    assert read.topic == UNKNOWN
    assert isinstance(read.topic, Topic)
    assert [*Module] == ["ed", "im", "wfm", "od"]


def test_a_value_without_a_constant_is_like_others() -> None:
    """It is equal to its text, hashed like it, and can be copied; what is no text is none of its values."""
    value = Module(UNKNOWN)
    assert (value, f"{value}", dict[str, int]({value: 1})[UNKNOWN]) == (UNKNOWN, UNKNOWN, 1)
    assert copy.deepcopy(value) == value
    assert Module("ed") is Module.ED
    assert issubclass(Module, ExtensibleEnum)
    with pytest.raises(ValueError, match="is not a valid Module"):
        Module(cast("str", 1))


def test_a_state_is_one_of_those_that_are_known() -> None:
    """Programs wait for states, so none is added."""
    with pytest.raises(ValidationError, match="state"):
        Download.model_validate(build_answer(Download) | {"state": UNKNOWN})
