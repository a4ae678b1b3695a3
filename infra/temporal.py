"""The engine: one plugin that configures client, worker and replayer alike, and the connection to Temporal."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from pydantic import BaseModel
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client, GrpcCompression, WorkflowExecutionDescription
from temporalio.common import SearchAttributeKey
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from domain import VERSION
from infra.backlinks import Backlinks
from infra.interceptors import ContextInterceptor
from infra.payloads import data_converter
from infra.turns import AskingAgain, Turns

Model = TypeVar("Model", bound=BaseModel)

BUILD_ID = f"haulage-{VERSION}"
"""What a worker reports as its build. Without it the SDK hashes every loaded module: 0.5 s of each start."""

ROOM = SearchAttributeKey.for_keyword("HaulageRoom")
PROJECT = SearchAttributeKey.for_keyword("HaulageProject")
STATE = SearchAttributeKey.for_keyword("HaulageState")
SEARCH_ATTRIBUTES = (ROOM, PROJECT, STATE)

# Half passed through, a class exists twice and `isinstance` lies: our floors go through together.
PASSED_THROUGH = (
    "domain",
    "activities",
    "excel",
    "clients",
    "services",
    "stores",
    "infra",
    "pydantic_core",
    "structlog",
    "msgspec",
)


def _freely(existing: WorkflowRunner | None) -> WorkflowRunner:
    return Turns(UnsandboxedWorkflowRunner())


def _in_sandbox(existing: WorkflowRunner | None) -> WorkflowRunner:
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return Turns(SandboxedWorkflowRunner(restrictions=restrictions))


def plugin(console: str = "", *, sandboxed: bool = False) -> SimplePlugin:
    """Converter, interceptors and the way workflows run, the same for everyone who speaks to the engine.

    Args:
        console: Scheme and host of the console, for links back to it.
        sandboxed: Whether workflows are kept from what history does not determine. That is found out when recorded
            histories are replayed; a worker that watches for it pays more for it than for all the rest of a workflow.
    """
    return SimplePlugin(
        "haulage",
        data_converter=data_converter,
        interceptors=[ContextInterceptor(), Backlinks(console), AskingAgain()],
        workflow_runner=_in_sandbox if sandboxed else _freely,
    )


@dataclass(frozen=True)
class Telemetry:
    """The SDK's runtime of this process, and the loopback address where it exports its figures."""

    runtime: Runtime
    address: str


@cache
def telemetry() -> Telemetry:
    """One runtime a process, made when it is first needed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host, port = probe.getsockname()
    address = f"{host}:{port}"
    metrics = PrometheusConfig(bind_address=address, durations_as_seconds=True, unit_suffix=True)
    return Telemetry(Runtime(telemetry=TelemetryConfig(metrics=metrics)), address)


async def connect(environment: Mapping[str, str] | None = None, *, console: str = "") -> Client:
    """Connect as the `TEMPORAL_…` variables or the profile say: address, namespace, credentials.

    Messages go as they are: the SDK would pack each, and have the engine pack its answers, which costs both more than
    to send the small ones that history takes.

    Args:
        environment: Variables to read instead of this process' own.
        console: Scheme and host of the console, for links back to it.
    """
    config = ClientConfig.load_client_connect_config(override_env_vars=environment)
    config.setdefault("target_host", "127.0.0.1:7233")
    return await Client.connect(
        **config,
        plugins=[plugin(console)],
        runtime=telemetry().runtime,
        grpc_compression=GrpcCompression.NONE,
    )


async def heartbeats(client: Client, description: WorkflowExecutionDescription, model: type[Model]) -> list[Model]:
    """What the running activities of a workflow said last. A hint that may be missing, never a record."""
    pending = description.raw_description.pending_activities
    details = [activity.heartbeat_details.payloads for activity in pending if activity.heartbeat_details.payloads]
    return [(await client.data_converter.decode(payloads, [model]))[0] for payloads in details]


async def missing_search_attributes(client: Client) -> list[str]:
    """The attributes that our workflows are found by and that this namespace does not know yet."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    known = await client.operator_service.list_search_attributes(request)
    return [key.name for key in SEARCH_ATTRIBUTES if key.name not in known.custom_attributes]


async def ensure_search_attributes(client: Client) -> None:
    """Register the attributes that are missing."""
    kind = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    missing = dict.fromkeys(await missing_search_attributes(client), kind)
    if missing:
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        await client.operator_service.add_search_attributes(request)
