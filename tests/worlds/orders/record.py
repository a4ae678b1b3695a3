"""The record of a world's platform: what is declared to the product."""

from __future__ import annotations

from domain.orders.access import AuthenticationMethod, PlatformAccess, TokenRenewal
from domain.orders.capability import (
    Capability,
    ClockCall,
    FilteredTimestamp,
    OrderQuery,
    OrderRowFields,
    Paging,
    PagingByNumberCursorTokenOrLink,
    TotalCall,
)
from domain.orders.declarations import (
    ApiVersion,
    DetailCall,
    ErrorFormat,
    ErrorRule,
    RateLimit,
    ReactionToPlatformError,
    TimeFormat,
    TimeNotation,
    TimeResolution,
)
from tests.worlds.orders.world import ROWS_MAX, World

KIND = "drawn"
ORDERS, TOTAL, DETAIL, CLOCK, ROOT = "/orders", "/total", "/order", "/time", "/"
LINES, TOKEN_PATH = "/lines", "/token"
API, API_HEADER = "api", "X-Api"
OLD_VERSION, VERSION = "v1", "v2"
"""The record names the first; the platform answers only the second, which is configured."""
TOTAL_HEADER = "X-Total"
BEIJING_MINUTES = 480
FORMS = {"utc": TimeNotation.RFC3339, "beijing": TimeNotation.SPACED, "epoch": TimeNotation.EPOCH}
SIGNINGS = {
    "token": PlatformAccess(signing=AuthenticationMethod.HEADER, header="Authorization", prefix="Bearer "),
    "basic": PlatformAccess(signing=AuthenticationMethod.BASIC),
    "renewed": PlatformAccess(
        signing=AuthenticationMethod.HEADER,
        header="Authorization",
        prefix="Bearer ",
        renewal=TokenRenewal(url=TOKEN_PATH),
    ),
    "md5": PlatformAccess(
        signing=AuthenticationMethod.SORTED_MD5,
        key_parameter="app_key",
        token_parameter="session",
        time_parameter="at",
        time_format=TimeFormat(form=TimeNotation.EPOCH),
        sign_parameter="sign",
    ),
}


def query_moments(world: World) -> TimeFormat:
    """Declare how a window is sent: to the second."""
    zone = BEIJING_MINUTES if world.is_so("moments", "beijing") else 0
    return TimeFormat(form=FORMS[world.options["moments"]], zone_minutes=zone)


def row_moments(world: World) -> TimeFormat:
    """Declare how the platform writes when an order was modified."""
    moments = query_moments(world)
    if world.is_so("kept", "seconds"):
        return moments
    form = TimeNotation.EPOCH_MS if moments.form is TimeNotation.EPOCH else moments.form
    return moments.model_copy(update={"form": form, "resolution": TimeResolution.MILLISECOND})


def draw_record(world: World) -> Capability:
    """Describe the platform truly, but for its flaws."""
    window_max = world.number("interval") + world.number("overlap") if world.is_so("window_max", "narrow") else None
    return Capability(
        kind=KIND,
        version=_version(world),
        query=OrderQuery(
            path=_path(world, ORDERS),
            field=FilteredTimestamp(world.options["field"]),
            start="from",
            end="to",
            start_inclusive=not world.is_so("ends", "none"),
            end_inclusive=world.is_so("ends", "both"),
            time_format=query_moments(world),
            window_max_seconds=window_max,
        ),
        paging=_paging(world),
        total=_total(world),
        clock=_clock(world),
        rate=RateLimit(per_second=1_000, burst=10_000),
        rows=OrderRowFields(
            list="$.orders",
            id="$.id",
            modified="$.modified",
            time_format=row_moments(world),
            version="$.version" if world.is_so("version", "sent") else None,
        ),
        detail=_detail(world),
        access=SIGNINGS[world.options["signing"]],
        errors=ErrorFormat(
            code="$.error.code",
            message="$.error.message",
            rules=(
                ErrorRule(meaning=ReactionToPlatformError.BUSY, codes=("busy",)),
                ErrorRule(meaning=ReactionToPlatformError.EXPIRED, codes=("expired",)),
            ),
        ),
    )


def _paging(world: World) -> Paging:
    kind = PagingByNumberCursorTokenOrLink(world.options["paging"])
    return Paging(
        kind=kind,
        parameter="" if kind is PagingByNumberCursorTokenOrLink.LINK else "page",
        first=world.number("first_page"),
        size_parameter="size",
        size=world.page_size,
        size_max=world.page_size,
        next="$.next"
        if kind in (PagingByNumberCursorTokenOrLink.CURSOR, PagingByNumberCursorTokenOrLink.TOKEN)
        else None,
        more="$.more" if world.is_so("more", "yes") else None,
        rows_max=ROWS_MAX if world.is_so("rows_max", "declared") else None,
    )


def _total(world: World) -> TotalCall | None:
    match world.options["total"]:
        case "in_pages":
            return TotalCall(value="$.total", parameters={"size": "1"})
        case "in_header":
            return TotalCall(header=TOTAL_HEADER, parameters={"size": "1"})
        case "own_call":
            return TotalCall(path=_path(world, TOTAL), value="$.count")
        case _:
            return None


def _clock(world: World) -> ClockCall:
    if world.is_so("clock", "date"):
        return ClockCall(path=_path(world, ROOT))
    return ClockCall(path=_path(world, CLOCK), value="$.now_ms", time_format=TimeFormat(form=TimeNotation.EPOCH_MS))


def _detail(world: World) -> DetailCall | None:
    match world.options["detail"]:
        case "call":
            return DetailCall(path=_path(world, DETAIL), id_parameter="id", row="$.order")
        case "pages":
            return DetailCall(
                path=_path(world, LINES),
                id_parameter="id",
                row="$.lines",
                into="lines",
                next="$.next",
                next_parameter="after",
            )
        case _:
            return None


def _version(world: World) -> ApiVersion | None:
    match world.options["api"]:
        case "in_path":
            return ApiVersion(value=OLD_VERSION)
        case "in_parameter":
            return ApiVersion(value=OLD_VERSION, parameter=API)
        case "in_header":
            return ApiVersion(value=OLD_VERSION, header=API_HEADER)
        case _:
            return None


def _path(world: World, path: str) -> str:
    return f"/{{version}}{path}" if world.is_so("api", "in_path") else path
