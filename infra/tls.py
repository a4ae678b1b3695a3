"""TLS to the components: contexts from settings, and a sentence with the setting's name for what fails."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import certifi

from domain.faults import Invalid
from infra.component_settings import TlsSettings

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_WRONG_NAMES: Final = {62, 64}
_UNTRUSTED: Final = {2, 18, 19, 20, 21}
_REFUSALS_OF_OURS: Final = ("ALERT", "HANDSHAKE_FAILURE")
"""Parts of the names of what a server answers that does not accept our certificate, or wants one."""
_NOT_TLS: Final = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}
_ENGINE_CERTIFICATES: Final = {
    "ExpiredContext": _EXPIRED,
    "NotValidYet": _NOT_YET_VALID,
    "NotValidForName": min(_WRONG_NAMES),
    "UnknownIssuer": max(_UNTRUSTED),
    "InvalidCertificate": 0,
}
_ENGINE_REFUSALS: Final = ("AlertReceived", "fatal alert", "error after connection")
"""A server that wants our certificate ends the connection only after its own part of the handshake."""


@dataclass(frozen=True, slots=True)
class TlsSettingNames:
    """The names of a component and of the settings that lead to it, for sentences."""

    component: str
    address: str
    """The setting that holds host and port."""
    secure: str
    ca_file: str
    cert_file: str
    key_file: str
    server_name: str

    @classmethod
    def of_section(cls, component: str, section: str, address_setting: str) -> TlsSettingNames:
        """Return the names in a section of our own settings."""
        prefix = f"HAULAGE_{section}__"
        tls = f"{prefix}TLS__"
        return cls(
            component,
            prefix + address_setting,
            f"{prefix}SECURE",
            f"{tls}CA_FILE",
            f"{tls}CERT_FILE",
            f"{tls}KEY_FILE",
            f"{tls}SERVER_NAME",
        )


DATABASE: Final = TlsSettingNames.of_section("PostgreSQL", "DATABASE", "URL")
STORE: Final = TlsSettingNames.of_section("the object store", "OBJECTS", "ENDPOINT")
ENGINE: Final = TlsSettingNames(
    "Temporal",
    "TEMPORAL_ADDRESS",
    "TEMPORAL_TLS",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "TEMPORAL_TLS_CLIENT_KEY_PATH",
    "TEMPORAL_TLS_SERVER_NAME",
)


class FixedServerNameContext(ssl.SSLContext):
    """A context that checks servers against one name, whatever host the connection was opened to."""

    server_name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See base class."""
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name or server_hostname, session)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """See base class."""
        if self.server_name:
            options["server_hostname"] = self.server_name
        return super().wrap_socket(*arguments, **options)


def build_client_tls_context(tls: TlsSettings, names: TlsSettingNames) -> ssl.SSLContext:
    """Return a context that checks the server's certificate and name, and shows our own certificate if there is one.

    Raises:
        Invalid: A file cannot be read or holds something else; the sentence names its setting.
    """
    context = FixedServerNameContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.server_name = tls.server_name
    # A slim image has no certificates of its own.
    authorities = tls.ca_file or os.environ.get("SSL_CERT_FILE") or certifi.where()
    with _raise_file_error_naming_setting(names.ca_file, authorities, "certificates of authorities"):
        context.load_verify_locations(authorities)
    if tls.cert_file is not None and tls.key_file is not None:
        for name, path in ((names.cert_file, tls.cert_file), (names.key_file, tls.key_file)):
            with _raise_file_error_naming_setting(name, path, ""):
                path.read_bytes()
        with _raise_file_error_naming_setting(
            f"{names.cert_file} and {names.key_file}", tls.cert_file, "a certificate and its key"
        ):
            context.load_cert_chain(tls.cert_file, tls.key_file, _raise_key_has_password)
    return context


def explain_tls_error(error: BaseException, names: TlsSettingNames) -> str | None:
    """Return what is wrong with TLS to a component and which setting to change; None if the error is about no TLS."""
    for each in _iterate_causes(error):
        match each:
            case ssl.SSLCertVerificationError():
                return _explain_certificate(each.verify_code, each.verify_message, names)
            case ssl.SSLEOFError():
                return _describe_refusal("it ended the connection", names)
            case ssl.SSLError() if each.reason in _NOT_TLS:
                return _describe_plain_server(names)
            case ssl.SSLError() if any(part in (each.reason or "") for part in _REFUSALS_OF_OURS):
                return _describe_refusal(str(each.reason).lower().replace("_", " "), names)
            case Exception() if "valid client certificate" in str(each):
                return _describe_refusal("it wants one", names)
            case ConnectionError() if "rejected SSL upgrade" in str(each):
                return _describe_plain_server(names)
    return None


def explain_engine_error(text: str) -> str | None:
    """Return what `explain_tls_error` does for the text of the engine's client, which is written in Rust."""
    if "corrupt message" in text or "InvalidMessage" in text:
        return _describe_plain_server(ENGINE)
    for part, code in _ENGINE_CERTIFICATES.items():
        if part in text:
            return _explain_certificate(code, part, ENGINE)
    if any(part in text for part in _ENGINE_REFUSALS) and "transport" in text:
        return _describe_refusal("it ended the connection", ENGINE)
    return None


def _describe_plain_server(names: TlsSettingNames) -> str:
    return f"{_capitalize(names.component)} does not speak TLS. Correct {names.address} or {names.secure}."


def _describe_refusal(reason: str, names: TlsSettingNames) -> str:
    """Return the sentence for a server that does not accept what we show."""
    return (
        f"{_capitalize(names.component)} refused our certificate, or wants one ({reason}). "
        f"Set {names.cert_file} and {names.key_file} to a certificate that it accepts, which has not expired."
    )


def _explain_certificate(code: int, reason: str, names: TlsSettingNames) -> str:
    what = f"The certificate of {names.component}"
    if code in {_EXPIRED, _NOT_YET_VALID}:
        return f"{what} is not valid at this time ({reason}). Renew it at the server that {names.address} names."
    if code in _WRONG_NAMES:
        return (
            f"{what} is for another name ({reason}). "
            f"Correct the host in {names.address}, or set {names.server_name} to the name in the certificate."
        )
    if code in _UNTRUSTED:
        return f"{what} is not signed by an authority that we trust ({reason}). Set {names.ca_file} to its authority."
    return f"{what} was refused ({reason}). See {names.ca_file} and {names.server_name}."


@contextmanager
def _raise_file_error_naming_setting(setting: str, path: Path | str, expected_content: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Of ssl.SSLError, which is one, the text says where in OpenSSL it arose.
        if isinstance(error, ssl.SSLError):
            reason = str(error.reason or "no PEM").lower().replace("_", " ")
            raise _build_tls_file_fault(f"{setting}: {path} does not hold {expected_content} ({reason}).") from None
        raise _build_tls_file_fault(f"{setting}: {path} cannot be read ({error.strerror or error}).") from None


def _build_tls_file_fault(message: str) -> Invalid:
    return Invalid("tls_file_wrong", message, "Correct the setting or the file: PEM, readable by this process.")


def _raise_key_has_password() -> NoReturn:
    # Without this OpenSSL would ask at the terminal.
    raise Invalid("tls_file_wrong", "The key of a client certificate has a password.", "Write it without one.")


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and whatever caused it; urllib3 keeps causes in fields of its own."""
    pending: list[Any] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop(0)
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending += [each.__cause__, each.__context__, getattr(each, "reason", None), getattr(each, "orig", None)]
        pending += each.args


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
