"""Projects: who may use an API, each with keys of its own."""

from __future__ import annotations

from haulage.transport import RetryingApiTransport


async def find_project_id_of_key(base_url: str, key: str, *, patience_seconds: float = 60.0) -> str | None:
    """Return the project that a key belongs to; None for the administrator's key."""
    transport = RetryingApiTransport(base_url, key, patience_seconds)
    await transport.open()
    try:
        caller = await transport.request_json("GET", "/v1/session")
    finally:
        await transport.close()
    return None if caller["project_id"] is None else str(caller["project_id"])


async def create_project(base_url: str, admin_key: str, name: str, *, patience_seconds: float = 60.0) -> str:
    """Create a project with the administrator's key; return the project's first key, which is shown this once.

    The request is not repeated where it may have arrived: a second project would be created.
    """
    transport = RetryingApiTransport(base_url, admin_key, patience_seconds)
    await transport.open()
    try:
        made = await transport.request_json("POST", "/v1/projects", is_repeatable=False, json={"name": name})
    finally:
        await transport.close()
    return str(made["key"]["api_key"])
