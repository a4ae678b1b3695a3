"""The envelope of a page: decode the body, unwrap the page, and describe what is wrong with either."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from domain.faults import SourceFault

NULL = msgspec.Raw(b"null")
_SURROGATE = re.compile(rb"\\u[dD]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SUCCESSES = (None, 0, 200, "0", "200", "ok", "success")
# Keys of the reason in an answer that reports a failure with HTTP status 200.
_REASONS = ("msg", "message", "error", "errors", "errmsg", "error_msg", "detail")
# Keys that report a failure beside an empty list: codes, flags that are not set, and errors that are.
_CODES = (
    *("code", "errcode", "err_code", "error_code", "errorCode", "errno"),
    *("ret", "retcode", "resultCode", "result_code"),
)
_FLAGS = ("success", "ok", "succeeded")
_ERRORS = ("error", "errors", "err", "exception", "fault")
_NOES = (0, "0", "false", "no", "fail", "failed")
_FAILURES = ("error", "err", "fail", "failed", "failure", "exception")
_NOTHING: tuple[Any, ...] = (None, "", [], {}, "none", "null")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TRUNCATED = "truncated"  # The decoder's word for text that ends too early
_TRAILING = "trailing"  # and for text behind its end.
_EMPTIES = (b"null", b"{}", b"[]")
_BYTE = re.compile(r"\(byte (\d+)\)")
_ODD_NUMBER = re.compile(rb"-?(?:NaN|Infinity)\b", re.IGNORECASE)
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(?P<key>\s*:)?|[{}\[\]]', re.DOTALL)
_PROTOCOL = 'Answer {"total": <number of rows>, "data": [{…}, …]} for every page.'


class PageEnvelope(msgspec.Struct):
    """A page, as it is or in an envelope: `{"status": 200, "msg": "", "data": {"total": …, "data": […]}}`."""

    total: msgspec.Raw = NULL
    data: msgspec.Raw = NULL
    status: Any = None
    msg: Any = None
    force_continue: Any = None
    template: msgspec.Raw = NULL
    header: msgspec.Raw = NULL
    footer: msgspec.Raw = NULL


def require_utf8_and_replace_lone_surrogates(body: bytes) -> bytes:
    """Return the body as text for the decoder, without byte order mark; lone surrogates become U+FFFD.

    The decoder does not validate the text of cells, so bytes that are not UTF-8 must be found here. A lone surrogate is
    no character in any encoding; encoders write one for text that was cut in the middle.

    Raises:
        SourceFault: The body is empty or not UTF-8.
    """
    body = body.removeprefix(_BYTE_ORDER_MARK)
    if not body or body.isspace():
        raise _build_no_data_fault("The source's answer is empty.")
    if not is_valid_utf8(body):
        raise _build_not_json_fault(body, f"byte {_count_valid_utf8_bytes(body):,} of it is not UTF-8")
    first_escape = body.find(b"\\")
    if first_escape < 0 or not _SURROGATE.search(body, first_escape):
        return body
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["lone"] else match[0], body)


def has_lone_surrogate(body: bytes) -> bool:
    """Return whether `require_utf8_and_replace_lone_surrogates` replaces a lone surrogate by U+FFFD."""
    first_escape = body.find(b"\\")
    if first_escape < 0 or not _SURROGATE.search(body, first_escape):
        return False
    return any(match["lone"] for match in _ESCAPE.finditer(body, first_escape))


def unwrap_page_or_raise_reported_failure(text: bytes) -> PageEnvelope:
    """Return the page, without its envelope if it has one.

    Raises:
        SourceFault: The text is no page, is cut off, or reports a failure.
    """
    try:
        page = msgspec.json.decode(text, type=PageEnvelope)
        require_no_reported_failure(page, text, has_rows=not _equals_any_of_short_texts(page.data, _EMPTIES))
        if starts_with_bytes(page.data, b"{") and bytes(page.total) == b"null":
            inner = msgspec.json.decode(page.data, type=PageEnvelope)
            inner.force_continue = inner.force_continue or page.force_continue
            page = page if _equals_any_of_short_texts(inner.data, (b"null",)) else inner
    except msgspec.ValidationError:
        if text.strip() == b"null":
            raise _build_no_data_fault("The source answered null.") from None
        raise SourceFault(
            "source_not_object", f"The source answered JSON that is not an object: {_quote_excerpt(text)}.", _PROTOCOL
        ) from None
    except msgspec.DecodeError as error:
        if _TRUNCATED in str(error) or (_is_object_without_closing_brace(text) and _TRAILING not in str(error)):
            raise _build_truncated_fault(text) from None
        raise (_build_nan_fault(text, str(error)) or _build_not_json_fault(text, str(error))) from None
    if _equals_any_of_short_texts(page.data, _EMPTIES) and bytes(page.total).strip(b'"') == b"0":
        # Some languages cannot distinguish an empty list from an empty map or from null.
        page.data = msgspec.Raw(b"[]")
    if _equals_any_of_short_texts(page.data, (b"null",)):
        raise _build_no_data_fault("The source's answer has no `data`.")
    return page


def starts_with_bytes(raw: msgspec.Raw, start: bytes) -> bool:
    """Return whether the JSON starts with just these bytes, without copying the rest, which may be many megabytes."""
    return bytes(memoryview(raw)[: len(start)]) == start


def _equals_any_of_short_texts(raw: msgspec.Raw, short: Sequence[bytes]) -> bool:
    return len(raw) <= max(map(len, short)) and bytes(raw) in short


def require_no_reported_failure(page: Any, text: bytes, *, has_rows: bool) -> None:
    """Check that the envelope reports no failure; sources that use one may do so with HTTP status 200.

    Args:
        page: The envelope as far as it was read.
        text: The whole answer, which is read only if there are no rows.
        has_rows: Whether the page has rows.

    Raises:
        SourceFault: It reports a failure.
    """
    if page.status not in _SUCCESSES and (page.msg is not None or _is_error_status(page.status)):
        raise _build_refused_fault(f"status {str(page.status)[:20]}", str(page.msg or ""))
    if has_rows:
        return
    envelope = msgspec.json.decode(text, type=dict[str, Any])
    reason = next((envelope[name] for name in _REASONS if envelope.get(name) not in _NOTHING), None)
    what = _find_failure_in_envelope_without_rows(envelope)
    if what is None and "data" not in envelope and reason is not None:
        what = "an error"
    if what is not None:
        raise _build_refused_fault(what, _convert_reason_to_text(reason))


def _find_failure_in_envelope_without_rows(envelope: Mapping[str, Any]) -> str | None:
    """Return the failure that an envelope without rows reports, if any: then the empty list does not mean the end."""
    values = {name: _strip_and_lower_if_text(envelope.get(name)) for name in (*_CODES, *_FLAGS, *_ERRORS, "status")}
    for name in _CODES:
        # 1 means success in some APIs; as an error code it is a failure.
        is_yes = values[name] == 1 and not name.startswith("err")
        if values[name] not in _SUCCESSES and not is_yes:
            return f"{name} {str(envelope[name])[:20]}"
    for name in _FLAGS:
        if values[name] is False or values[name] in _NOES:
            return "a failure"
    if values["status"] is False or values["status"] in _FAILURES:
        return f"status {str(envelope['status'])[:20]}"
    if any(values[name] not in (*_NOTHING, *_SUCCESSES, False) for name in _ERRORS):
        return "an error"
    return None


def _strip_and_lower_if_text(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _is_error_status(status: Any) -> bool:
    return status is False or (isinstance(status, int) and 400 <= status <= 599)


def _convert_reason_to_text(reason: Any) -> str:
    return reason if isinstance(reason, str) else "" if reason is None else msgspec.json.encode(reason).decode()


def is_true_or_one(flag: Any) -> bool:
    """Return whether a flag is set, in any of its spellings."""
    return flag is True or flag == 1 or flag in ("true", "1")


def _build_refused_fault(what: str, reason: str) -> SourceFault:
    quoted = f": {_quote_excerpt(reason.encode(), 300)}" if reason else ""
    return SourceFault(
        "source_refused",
        f"The source answered {what} in its envelope{quoted}.",
        "Correct the request that the URL makes, or ask the owner of the source.",
    )


def _build_no_data_fault(message: str) -> SourceFault:
    return SourceFault("source_no_data", message, _PROTOCOL, transient=True)


def _is_object_without_closing_brace(text: bytes) -> bool:
    """Return whether the text starts as an object and does not end as one."""
    return text.lstrip()[:1] == b"{" and text.rstrip()[-1:] != b"}"


def _build_truncated_fault(text: bytes) -> SourceFault:
    return SourceFault(
        "source_cut_off",
        f"The source's answer ends after {len(text):,} bytes in the middle of its JSON: {_quote_excerpt(text)}.",
        "Check the log of the source, and of any proxy in front of it.",
        transient=True,
    )


def _count_valid_utf8_bytes(body: bytes) -> int:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(body)


def _build_not_json_fault(text: bytes, why: str) -> SourceFault:
    if text.lstrip()[:1] == b"<":
        return SourceFault(
            "source_not_json",
            f"The source did not answer JSON but HTML or XML: {_quote_excerpt(text)}.",
            "It may ask for a login: send what it wants as `headers`. Its answers must be application/json in UTF-8.",
        )
    return SourceFault(
        "source_not_json",
        f"The source did not answer JSON ({why}): {_quote_excerpt(text)}.",
        "Check the URL in a terminal; it must answer application/json in UTF-8.",
    )


def _build_nan_fault(text: bytes, why: str) -> SourceFault | None:
    """Build the fault for NaN and Infinity, which some encoders write although JSON has no such numbers."""
    byte = _BYTE.search(why)
    found = byte and _ODD_NUMBER.search(text, max(0, int(byte[1]) - 1), int(byte[1]) + len("-Infinity"))
    if not found:
        return None
    return SourceFault(
        "source_not_json",
        f"The source did not answer JSON: {found[0].decode()} is {_describe_row_and_key_at(text, found.start())}.",
        "Answer null, or a text, where there is no number.",
    )


def _describe_row_and_key_at(text: bytes, at: int) -> str:
    """Describe a position by row and key; the row is that of the outermost list."""
    open_lists: list[list[Any]] = []  # for each open list: its key, and the objects so far
    depth, name, inside = 0, b"", list[int]()
    for token in _TOKEN.finditer(text, 0, at):
        match token[0][:1]:
            case b'"':
                name = token[1] if token["key"] else name
            case b"[":
                open_lists.append([name, -1])
                inside.append(depth)
                depth += 1
            case b"{":
                if inside and inside[-1] == depth - 1:
                    open_lists[-1][1] += 1
                depth += 1
            case _:
                depth -= 1
                if inside and inside[-1] == depth:
                    inside.pop()
                    open_lists.pop()
    key = f"under the key {_quote_excerpt(name)}" if name else "in it"
    return f"in {open_lists[0][0].decode(errors='replace')[:40]}[{open_lists[0][1]}], {key}" if open_lists else key


def parse_total_unless_null(raw: bytes) -> int | None:
    """Return the total, or None if the answer has none.

    Raises:
        SourceFault: The total is not a whole number.
    """
    text = raw.decode().strip('"')
    if text == "null":
        return None
    # Languages whose only number type is a float write 1000.0.
    number = re.fullmatch(r"([0-9]{1,15})(?:\.0+)?", text)
    if number is None:
        raise SourceFault(
            "source_bad_total",
            f"The source's `total` is {_quote_excerpt(raw)}, not a whole number of rows.",
            "Answer the number of all rows that match, from 0 up.",
        )
    return int(number[1])


def _quote_excerpt(body: bytes, limit: int = 80) -> str:
    text = body[: limit * 4].decode(errors="replace").strip()
    return f"“{text[:limit]}…”" if len(text) > limit else f"“{text}”"


def is_valid_utf8(text: bytes) -> bool:
    """Return whether bytes are UTF-8.

    Arrow validates 18 times faster than `bytes.decode`, which builds an unused string.
    """
    if text.isascii():
        return True
    # The API and workflows import this module, and must not load Arrow.
    from excel.arrow import pa  # noqa: PLC0415

    buffers = [None, pa.py_buffer(array("i", (0, len(text)))), pa.py_buffer(text)]
    try:
        pa.Array.from_buffers(pa.string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
