"""What the engine's client says of TLS, which it says in several ways, becomes one sentence."""

from __future__ import annotations

import pytest

from infra import tls

REFUSED = "`get_system_info` call error after connection: Status {{ code: {}, source: Some({}) }}"


@pytest.mark.parametrize(
    "text",
    [
        REFUSED.format("Unknown", 'tonic::transport::Error(Transport, "transport error: fatal alert")'),
        REFUSED.format("Cancelled", 'tonic::transport::Error(Transport, hyper::Error(Canceled, "connection closed"))'),
    ],
    ids=["alert", "closed before the call"],
)
def test_a_connection_that_ends_after_its_handshake_is_a_refusal_of_our_certificate(text: str) -> None:
    """The server looks at our certificate after its own part; on a busy machine the call finds it closed already."""
    assert "refused our certificate" in (tls.explain_engine_error(text) or "")


def test_what_is_not_about_tls_is_not_explained() -> None:
    """Another error keeps its own words."""
    assert tls.explain_engine_error("Status { code: PermissionDenied, message: no }") is None
