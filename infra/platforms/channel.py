"""The way to a platform: a permit, a signed request through the guard, and its answer, told apart from an error."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlencode, urljoin, urlsplit

from domain.faults import SourceFault
from domain.orders.capability import CODE, MESSAGE, Capability, ErrorRule, Meaning
from domain.orders.jsonpath import Reader, Unreadable
from infra import log
from infra.http import Answer, GuardedClient
from infra.platforms.access import Account, Credentials, Keyring, sign
from infra.platforms.failures import (
    PlatformBusy,
    PlatformFailure,
    PlatformLied,
    PlatformRefused,
    PlatformSlow,
    TokenExpired,
)
from infra.platforms.pace import Pace
from infra.platforms.permits import PlatformGate
from infra.platforms.tape import Tape, question

ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
ANSWER_TIMEOUT_SECONDS: Final = 60.0
EXCERPT_CHARACTERS: Final = 300
RETRY_PAUSES_SECONDS: Final = (0.1, 0.5)
PATIENCE_SECONDS: Final = 2.0
"""A longer wait that a platform asks for is told, so that it can be a timer elsewhere."""
BUSY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Told:
    """A good answer, and the values that were looked for in it."""

    answer: Answer
    values: Mapping[str, Any]
    asked_at: datetime
    """When it was asked for, by the platform's clock."""


class Channel:
    """Asks one account, with credentials that it renews once when they have expired.

    Args:
        gate: Shared by all channels of this process to the account.
        keyring: Where its credentials are read.
        tape: What was told to this piece of work before; what is told now is kept there, too.
        pace: How much time it has.
    """

    def __init__(
        self,
        http: GuardedClient,
        gate: PlatformGate,
        capability: Capability,
        account: Account,
        keyring: Keyring,
        tape: Tape,
        pace: Pace,
    ) -> None:
        self.tape = tape
        self._pace = pace
        self._http = http
        self._gate = gate
        self._capability = capability
        self._account = account
        self._keyring = keyring
        self._credentials: Credentials | None = None
        self._errors = Reader(capability.error_paths())

    @property
    def skew(self) -> timedelta:
        """How far the platform's clock is before ours, as its last answer told; none as long as it told nothing."""
        return self._gate.skew or timedelta()

    def set_clock(self, now: datetime) -> None:
        """Note what the platform's clock says just now."""
        self._gate.skew = now - datetime.now(UTC)

    async def ask(self, path: str, parameters: Mapping[str, str], reader: Reader) -> Told:
        """One answer to one question; raises a PlatformFailure."""
        return await self._ask(self._account.base_url.rstrip("/") + path, parameters, reader)

    async def follow(self, address: str, reader: Reader) -> Told:
        """What lies behind an address that an answer told; it gets our credentials, so it must be the platform's."""
        target = urljoin(self._account.base_url, address)
        ours, theirs = urlsplit(self._account.base_url), urlsplit(target)
        if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
            raise PlatformLied(
                f"{self} sent us to {theirs.scheme}://{theirs.netloc} for its next page. Only its own address "
                f"{ours.scheme}://{ours.netloc} gets our credentials; set that one if the platform has moved."
            )
        return await self._ask(target, {}, reader)

    async def head(self, path: str, parameters: Mapping[str, str], *, counted: bool) -> Answer:
        """An answer whose headers count, whatever its status; a busy one may be that of a gateway in between."""
        if counted:
            await self._take_turn()
        answer = await self._exchange(self._account.base_url.rstrip("/") + path, parameters)
        if answer.status in BUSY_STATUSES:
            raise self._failure(answer, self._read_error(answer))
        return answer

    def __str__(self) -> str:
        return f"Platform {self._account.platform} ({self._capability.kind}, shop {self._account.shop})"

    async def _ask(self, url: str, parameters: Mapping[str, str], reader: Reader) -> Told:
        asked = question(url, parameters)
        if kept := self.tape.heard(asked):
            return self._told(kept.answer, reader, kept.asked_at)
        told = await self._ask_anew(url, parameters, reader)
        self.tape.keep(asked, told.asked_at, told.answer)
        return told

    async def _ask_anew(self, url: str, parameters: Mapping[str, str], reader: Reader) -> Told:
        if self._gate.skew is None and self._capability.access.time_parameter:
            # A request that is signed with a time too far from the platform's is refused.
            clock = self._capability.clock
            await self.head(clock.path, clock.parameters, counted=clock.counted)
        try:
            return await self._ask_patiently(url, parameters, reader)
        except TokenExpired:
            log.get(__name__).info("platform_token_renewed", platform=self._account.platform)
            self._credentials = await self._keyring(True)
            return await self._ask_patiently(url, parameters, reader)

    async def _ask_patiently(self, url: str, parameters: Mapping[str, str], reader: Reader) -> Told:
        """One bad answer among many pages must not send a whole window back to its beginning."""
        for pause_seconds in RETRY_PAUSES_SECONDS:
            try:
                return await self._ask_once(url, parameters, reader)
            except PlatformBusy as busy:
                asked = busy.retry_after_seconds
                if asked is not None and asked > PATIENCE_SECONDS:
                    raise
                await asyncio.sleep(pause_seconds if asked is None else asked)
        return await self._ask_once(url, parameters, reader)

    async def _ask_once(self, url: str, parameters: Mapping[str, str], reader: Reader) -> Told:
        await self._take_turn()
        asked_at = datetime.now(UTC) + self.skew
        return self._told(await self._exchange(url, parameters), reader, asked_at)

    async def _take_turn(self) -> None:
        if self._pace.is_over:
            raise PlatformSlow(f"{self} did not tell the whole slice within its timeout.")
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._gate.permits.take(self._pace.patience_seconds)
        finally:
            self._pace.spend(clock() - began)

    async def _exchange(self, url: str, parameters: Mapping[str, str]) -> Answer:
        self._credentials = self._credentials or await self._keyring(False)
        signed = sign(self._capability.access, self._credentials, parameters, datetime.now(UTC) + self.skew)
        query = urlencode(signed.parameters)
        joint = "&" if "?" in url else "?"
        try:
            answer = await self._http.get(
                f"{url}{joint}{query}" if query else url,
                headers={"Accept": "application/json", **signed.headers},
                max_bytes=ANSWER_MAX_BYTES,
                timeout_seconds=ANSWER_TIMEOUT_SECONDS,
            )
        except SourceFault as fault:
            raise _unanswered(self, fault) from None
        if (date := date_of(answer)) is not None:
            self.set_clock(date)
        return answer

    def _told(self, answer: Answer, reader: Reader, asked_at: datetime) -> Told:
        if answer.status != 200:
            raise self._failure(answer, self._read_error(answer))
        try:
            values = reader.read(answer.body)
        except Unreadable as error:
            raise PlatformLied(
                f"{self} answered 200 with something else than was expected ({error}): {_excerpt(answer)} "
                "Compare it with the paths of its record."
            ) from None
        if values.get(CODE) not in (None, 0, "", "0"):
            raise self._failure(answer, values)
        return Told(answer, values, asked_at)

    def _read_error(self, answer: Answer) -> Mapping[str, Any]:
        try:
            return self._errors.read(answer.body)
        except Unreadable:
            return {}

    def _failure(self, answer: Answer, values: Mapping[str, Any]) -> PlatformFailure:
        code, message = str(values.get(CODE) or ""), str(values.get(MESSAGE) or "")
        rule = next((each for each in self._capability.errors.rules if _fits(each, answer, code, message)), None)
        told = (
            f"{self} answered {answer.status}"
            + (f", code {code}" if code else "")
            + f": {(message or _excerpt(answer)).rstrip('. ')}"
        )
        match rule.meaning if rule else _usual(answer.status):
            case Meaning.BUSY:
                wait = self._wait_seconds(answer, message)
                wait = rule.retry_after_seconds if wait is None and rule else wait
                return PlatformBusy(f"{told}. Ask again later.", retry_after_seconds=wait)
            case Meaning.EXPIRED:
                return TokenExpired(f"{told}. Renew what the reference to its credentials leads to.")
            case Meaning.REFUSED:
                return PlatformRefused(f"{told}. Mend the account's rights or its configuration.")

    def _wait_seconds(self, answer: Answer, message: str) -> float | None:
        value = answer.headers.get("Retry-After", "")
        if value.isascii() and value.replace(".", "", 1).isdigit():
            return float(value)
        if (moment := _date(value)) is not None:
            return max(0.0, (moment - (date_of(answer) or datetime.now(UTC))).total_seconds())
        pattern = self._capability.errors.wait_pattern
        found = re.search(pattern, message) if pattern else None
        return float(found[1]) if found else None


def date_of(answer: Answer) -> datetime | None:
    """When the platform answered, by its own clock."""
    return _date(answer.headers.get("Date", ""))


def _date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else None


def _fits(rule: ErrorRule, answer: Answer, code: str, message: str) -> bool:
    return (
        (not rule.statuses or answer.status in rule.statuses)
        and (not rule.codes or code in rule.codes)
        and (not rule.pattern or re.search(rule.pattern, message) is not None)
    )


def _usual(status: int) -> Meaning:
    if status in BUSY_STATUSES:
        return Meaning.BUSY
    return Meaning.EXPIRED if status == 401 else Meaning.REFUSED


def _unanswered(channel: Channel, fault: SourceFault) -> PlatformFailure:
    told = f"{channel}: {fault.record.sentence}"
    if fault.transient:
        return PlatformBusy(told, retry_after_seconds=fault.retry_after_seconds)
    return PlatformRefused(told)


def _excerpt(answer: Answer) -> str:
    return repr(answer.body[:EXCERPT_CHARACTERS].decode(errors="replace")) + "."
