"""The engine: the connection to Temporal, and one plugin that configures client, worker and replayer alike."""

from __future__ import annotations

import dataclasses
import logging
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from pydantic import BaseModel
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
)
from temporalio.client import Client, GrpcCompression, WorkflowExecutionDescription
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, pydantic_data_converter
from temporalio.converter import CompositePayloadConverter, DefaultPayloadConverter, JSONPlainPayloadConverter
from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS
from temporalio.plugin import SimplePlugin
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import KeepAliveConfig
from temporalio.worker import PatchActivationInput, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from domain import VERSION
from domain.faults import Invalid
from infra import payloads, tls, tracing
from infra.component_settings import TlsSettings
from infra.console_links import ConsoleLinkInterceptor
from infra.interceptors import LogContextAndFaultErrorInterceptor
from infra.outages import EngineUnreachable
from infra.query_guard import QueryRetryInterceptor, WorkflowTaskOnlyRunner

Model = TypeVar("Model", bound=BaseModel)

KEEP_ALIVE: Final = KeepAliveConfig(interval_millis=15_000, timeout_millis=5_000)
"""By default a connection to a host that was cut off in silence is kept for 45 s. A frontend takes a ping each 10 s."""
CORE_LOGGER: Final = "temporalio.core"
BUILD_ID = f"haulage-{VERSION}"
"""The build id of workers. Without one the SDK hashes every loaded module: 0.3 s of processor at each start."""

SYSTEM = SearchAttributeKey.for_keyword("HaulageSystem")
PROJECT = SearchAttributeKey.for_keyword("HaulageProject")
STATE = SearchAttributeKey.for_keyword("HaulageState")
SEARCH_ATTRIBUTES = (SYSTEM, PROJECT, STATE)

WORKFLOW_QUEUE: Final = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITY_QUEUE: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
POLLED_WITHIN: Final = timedelta(minutes=2)
"""A worker polls at least once a minute, also where there is nothing to do."""
DESCRIBE_TIMEOUT: Final = timedelta(seconds=2)

# If only some of them were passed through, a class could exist twice and `isinstance` would be wrong.
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


class StructAndModelJsonConverter(PydanticJSONPlainPayloadConverter):
    """Convert msgspec's structs beside pydantic's models: a struct costs a tenth, where thousands travel a second."""

    _METADATA: Final = {"encoding": b"json/plain"}

    def to_payload(self, value: Any) -> Payload | None:
        """See base class."""
        if isinstance(value, msgspec.Struct):
            return Payload(metadata=self._METADATA, data=msgspec.json.encode(value))
        return super().to_payload(value)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """See base class."""
        if isinstance(type_hint, type) and issubclass(type_hint, msgspec.Struct):
            return _get_decoder(type_hint).decode(payload.data)
        return super().from_payload(payload, type_hint)


# Shared: the SDK makes a converter for each activity of a workflow, and each would learn all types anew.
_CONVERTERS = (
    *(
        StructAndModelJsonConverter() if isinstance(each, JSONPlainPayloadConverter) else each
        for each in DefaultPayloadConverter.default_encoding_payload_converters
    ),
    payloads.MissingKeyPayloadConverter(),
)


class HaulagePayloadConverter(CompositePayloadConverter):
    """The SDK's own converters, with `StructAndModelJsonConverter` for JSON."""

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)


data_converter = dataclasses.replace(pydantic_data_converter, payload_converter_class=HaulagePayloadConverter)


@cache
def _get_decoder(struct: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(struct)


def build_plugin(
    console: str = "", *, sandboxed: bool = False, codec: payloads.EncryptingCodec | None = None
) -> SimplePlugin:
    """Return the converter, interceptors and workflow runner that every client and worker of the engine uses.

    Args:
        console: Scheme and host of the console, for links back to it.
        sandboxed: Whether workflows are kept from what history does not determine. Replays of recorded histories find
            that out; a worker with the sandbox spends more on it than on all the rest of a workflow.
        codec: Encrypts and decrypts what goes through the engine.
    """
    return SimplePlugin(
        "haulage",
        data_converter=payloads.add_codec(data_converter, codec),
        interceptors=[
            *tracing.build_interceptors(),
            LogContextAndFaultErrorInterceptor(),
            ConsoleLinkInterceptor(console),
            QueryRetryInterceptor(),
        ],
        workflow_runner=_build_sandboxed_runner if sandboxed else _build_unsandboxed_runner,
    )


def _build_unsandboxed_runner(existing: WorkflowRunner | None) -> WorkflowRunner:
    return WorkflowTaskOnlyRunner(UnsandboxedWorkflowRunner())


def _build_sandboxed_runner(existing: WorkflowRunner | None) -> WorkflowRunner:
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return WorkflowTaskOnlyRunner(SandboxedWorkflowRunner(restrictions=restrictions))


@dataclass(frozen=True)
class SdkRuntimeAndMetricsAddress:
    """The SDK's runtime of this process, and the loopback address where it exports its metrics."""

    runtime: Runtime
    address: str


@cache
def get_or_create_sdk_runtime() -> SdkRuntimeAndMetricsAddress:
    """Return the one runtime of this process; create it at the first call."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host, port = probe.getsockname()
    address = f"{host}:{port}"
    metrics = PrometheusConfig(bind_address=address, durations_as_seconds=True, unit_suffix=True)
    return SdkRuntimeAndMetricsAddress(
        Runtime(telemetry=TelemetryConfig(metrics=metrics, logging=_build_core_log_forwarding())), address
    )


def _build_core_log_forwarding() -> LoggingConfig:
    """Have the SDK's core log by the standard library, whose lines are JSON: by itself it writes coloured text."""
    logger = logging.getLogger(CORE_LOGGER)
    logger.addFilter(_replace_core_log_by_its_fields)
    return LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(
            logger, append_target_to_name=False, prepend_target_on_message=False, append_log_fields_to_message=False
        ),
    )


def _replace_core_log_by_its_fields(record: logging.LogRecord) -> bool:
    """Replace the SDK's own record by its fields, which a line can hold."""
    if (core := record.__dict__.pop("temporal_log", None)) is not None:
        record.__dict__["target"], record.__dict__["fields"] = core.target, core.fields
    return True


def build_patch_check(compatible_with: str) -> Callable[[PatchActivationInput], bool] | None:
    """Return the check whether a workflow takes a changed step: not while workers of an older version may replay it.

    A patch is named by the version that brought it and what it changes: `workflow.patched("0.2.0 waits first")`.
    Workflows that took a step keep it, whatever is checked later.
    """
    if not compatible_with:
        return None
    oldest = _parse_version(compatible_with)
    return lambda patch: _parse_version(patch.patch_id.partition(" ")[0]) <= oldest


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


async def connect(
    environment: Mapping[str, str] | None = None, *, console: str = "", codec: payloads.EncryptingCodec | None = None
) -> Client:
    """Connect with the address, namespace, credentials and TLS of the `TEMPORAL_…` variables or of the profile.

    Messages are not compressed: to compress each and have the engine compress its answers costs more than to send the
    small ones that a history takes.

    Args:
        environment: Variables to read instead of this process' own.
        console: Scheme and host of the console, for links back to it.
        codec: Encrypts and decrypts what goes through the engine.

    Raises:
        EngineUnreachable: There was no connection; the text names the setting where TLS is why.
        Invalid: A file of TLS cannot be read.
    """
    profile = ClientConfigProfile.load(override_env_vars=environment)
    if profile.tls is not None:
        _require_readable_tls_files(profile.tls)
    config = profile.to_client_connect_config()
    config.setdefault("target_host", "127.0.0.1:7233")
    try:
        return await Client.connect(
            **config,
            plugins=[build_plugin(console, codec=codec)],
            runtime=get_or_create_sdk_runtime().runtime,
            grpc_compression=GrpcCompression.NONE,
            keep_alive_config=KEEP_ALIVE,
        )
    except RuntimeError as error:
        reason = tls.explain_engine_error(str(error)) if config.get("tls") else None
        found = f"Temporal at {config['target_host']} does not answer: {_shorten_client_error(str(error))}"
        raise EngineUnreachable(reason or found) from error


def _shorten_client_error(text: str) -> str:
    """Return the innermost reason of an error of the client, which prints Rust's structures; else the whole text."""
    reasons = re.findall(r'\b(?:message|error): "([^"]+)"', text)
    return reasons[-1] if reasons else text


def _require_readable_tls_files(settings: ClientConfigTLS) -> None:
    """Read the files of TLS as the SDK will: its own errors name no setting."""
    ca, cert, key = settings.server_root_ca_cert, settings.client_cert, settings.client_private_key
    if (cert is None) != (key is None):
        raise Invalid(
            "tls_file_wrong",
            f"{tls.ENGINE.cert_file} and {tls.ENGINE.key_file} belong together.",
            "Set both, or neither.",
        )
    has_pair = isinstance(cert, Path) and isinstance(key, Path)
    files = TlsSettings(
        ca_file=ca if isinstance(ca, Path) else None,
        cert_file=cert if has_pair else None,
        key_file=key if has_pair else None,
    )
    tls.build_client_tls_context(files, tls.ENGINE)


async def check_health(engine: Client) -> None:
    """Check that the engine answers and reads its own database: a frontend alone is healthy without it."""
    await engine.service_client.check_health()
    await engine.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=engine.namespace))


def get_activity_call() -> str:
    """Identify what the running activity was called for: the same in each of its attempts, and in no other call."""
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}"


async def list_heartbeat_details(
    engine: Client, description: WorkflowExecutionDescription, model: type[Model]
) -> list[Model]:
    """Return the last heartbeats of a workflow's running activities. Any may be missing: use them as hints only."""
    pending = description.raw_description.pending_activities
    details = [activity.heartbeat_details.payloads for activity in pending if activity.heartbeat_details.payloads]
    return [(await engine.data_converter.decode(payloads, [model]))[0] for payloads in details]


async def list_missing_search_attributes(engine: Client) -> list[str]:
    """Return the names of our search attributes that this namespace does not have yet."""
    request = ListSearchAttributesRequest(namespace=engine.namespace)
    known = await engine.operator_service.list_search_attributes(request)
    return [key.name for key in SEARCH_ATTRIBUTES if key.name not in known.custom_attributes]


async def ensure_search_attributes(engine: Client) -> None:
    """Register the search attributes that are missing."""
    kind = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    missing = dict.fromkeys(await list_missing_search_attributes(engine), kind)
    if missing:
        request = AddSearchAttributesRequest(namespace=engine.namespace, search_attributes=missing)
        await engine.operator_service.add_search_attributes(request)


async def describe_queue(engine: Client, queue: str, kind: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
    """Return the backlog and the pollers of a task queue."""
    request = DescribeTaskQueueRequest(
        namespace=engine.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind, report_stats=True
    )
    return await engine.workflow_service.describe_task_queue(request, timeout=DESCRIBE_TIMEOUT)


def list_polling_build_ids(description: DescribeTaskQueueResponse, within: timedelta = POLLED_WITHIN) -> set[str]:
    """Return the build ids of the workers that polled a queue no longer ago than `within`."""
    since = datetime.now(UTC) - within
    recent = (each for each in description.pollers if each.last_access_time.ToDatetime(UTC) > since)
    return {build_id for each in recent if (build_id := each.worker_version_capabilities.build_id)}


def list_polling_workers(description: DescribeTaskQueueResponse, within: timedelta = POLLED_WITHIN) -> set[str]:
    """Return the identities of the workers that polled a queue no longer ago than `within`."""
    since = datetime.now(UTC) - within
    return {poller.identity for poller in description.pollers if poller.last_access_time.ToDatetime(UTC) > since}


def build_running_workflows_url(ui_url: str, namespace: str, system: str, project_id: str | None) -> str:
    """Return the page of Temporal's Web UI that lists the running workflows of a system, or of a project in it."""
    query = f'ExecutionStatus="Running" AND {SYSTEM.name}="{system}"'
    if project_id is not None:
        query += f' AND {PROJECT.name}="{project_id}"'
    return f"{ui_url.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows?query={quote(query, safe='')}"
