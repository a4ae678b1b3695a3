"""The engine: one plugin that configures client, worker and replayer alike, and the connection to Temporal."""

from __future__ import annotations

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from infra.interceptors import ContextInterceptor

ROOM = SearchAttributeKey.for_keyword("HaulageRoom")
PROJECT = SearchAttributeKey.for_keyword("HaulageProject")
STATE = SearchAttributeKey.for_keyword("HaulageState")
SEARCH_ATTRIBUTES = (ROOM, PROJECT, STATE)

# Half passed through, a class exists twice and `isinstance` lies: our floors go through together.
PASSED_THROUGH = ("domain", "activities", "infra", "pydantic_core", "structlog", "msgspec")


def _runner(existing: WorkflowRunner | None) -> WorkflowRunner:
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return SandboxedWorkflowRunner(restrictions=restrictions)


def plugin() -> SimplePlugin:
    """Converter, interceptors and sandbox rules, the same for everyone who speaks to the engine."""
    return SimplePlugin(
        "haulage",
        data_converter=pydantic_data_converter,
        interceptors=[ContextInterceptor()],
        workflow_runner=_runner,
    )


async def connect(namespace: str | None = None) -> Client:
    """Connect with the address, namespace and credentials of the `TEMPORAL_…` variables or profile."""
    config = ClientConfig.load_client_connect_config()
    if namespace:
        config["namespace"] = namespace
    config.setdefault("target_host", "127.0.0.1:7233")
    return await Client.connect(**config, plugins=[plugin()])


async def ensure_search_attributes(client: Client) -> None:
    """Register the attributes that our workflows are found by; those that exist are left alone."""
    known = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    wanted = {
        key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        for key in SEARCH_ATTRIBUTES
        if key.name not in known.custom_attributes
    }
    if wanted:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted)
        )
