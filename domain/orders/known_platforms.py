"""The built-in kinds of platform, each declared according to its own documentation."""

from __future__ import annotations

from typing import Final

from domain.orders.access import AuthenticationMethod, PlatformAccess, TokenRenewal
from domain.orders.capability import (
    Capability,
    ClockCall,
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
)

DAY_SECONDS: Final = 86_400
BEIJING: Final = 8 * 60
_MONTHS_3: Final = 90 * DAY_SECONDS
_BEIJING_TIME: Final = TimeFormat(form=TimeNotation.SPACED, zone_minutes=BEIJING)

TAOBAO: Final = Capability(
    kind="taobao",
    query=OrderQuery(
        path="/router/rest",
        parameters={
            "method": "taobao.trades.sold.increment.get",
            "v": "2.0",
            "format": "json",
            "sign_method": "md5",
            "fields": "tid,modified,status,payment,orders",
            # Without counting, a page is returned five times as fast.
            "use_has_next": "true",
        },
        start="start_modified",
        end="end_modified",
        time_format=_BEIJING_TIME,
        window_max_seconds=DAY_SECONDS,
        history_seconds=_MONTHS_3,
    ),
    paging=Paging(
        kind=PagingByNumberCursorTokenOrLink.NUMBER,
        parameter="page_no",
        size_parameter="page_size",
        size=50,
        size_max=100,
        more="$.trades_sold_increment_get_response.has_next",
    ),
    total=TotalCall(
        parameters={"use_has_next": "false", "fields": "tid", "page_no": "1", "page_size": "1"},
        value="$.trades_sold_increment_get_response.total_results",
    ),
    clock=ClockCall(
        path="/router/rest",
        parameters={"method": "taobao.time.get", "v": "2.0", "format": "json", "sign_method": "md5"},
        value="$.time_get_response.time",
        time_format=_BEIJING_TIME,
    ),
    rate=RateLimit(per_second=10, burst=10),
    rows=OrderRowFields(
        list="$.trades_sold_increment_get_response.trades.trade",
        id="$.tid",
        modified="$.modified",
        time_format=_BEIJING_TIME,
        absent_when_empty=True,
    ),
    detail=DetailCall(
        path="/router/rest",
        parameters={
            "method": "taobao.trade.fullinfo.get",
            "v": "2.0",
            "format": "json",
            "sign_method": "md5",
            "fields": "tid,modified,status,payment,orders,receiver_name,buyer_message",
        },
        id_parameter="tid",
        row="$.trade_fullinfo_get_response.trade",
    ),
    access=PlatformAccess(
        signing=AuthenticationMethod.SORTED_MD5,
        key_parameter="app_key",
        token_parameter="session",  # noqa: S106 (the name of a parameter)
        time_parameter="timestamp",
        time_format=_BEIJING_TIME,
        sign_parameter="sign",
    ),
    errors=ErrorFormat(
        code="$.error_response.code",
        message="$.error_response.msg",
        wait_pattern=r"last for (\d+) more seconds",
        rules=(
            ErrorRule(meaning=ReactionToPlatformError.BUSY, codes=("7",), retry_after_seconds=1),
            ErrorRule(meaning=ReactionToPlatformError.BUSY, codes=("10", "15")),
            ErrorRule(meaning=ReactionToPlatformError.EXPIRED, codes=("26", "27")),
        ),
    ),
)

PINDUODUO: Final = Capability(
    kind="pinduoduo",
    query=OrderQuery(
        path="/api/router",
        parameters={
            "type": "pdd.order.number.list.increment.get",
            "data_type": "JSON",
            "order_status": "5",
            "refund_status": "5",
            "is_lucky_flag": "0",
            "use_has_next": "true",
        },
        start="start_updated_at",
        end="end_updated_at",
        time_format=TimeFormat(form=TimeNotation.EPOCH),
        window_max_seconds=1_800,
        newest_seconds=180,
        history_seconds=_MONTHS_3,
    ),
    paging=Paging(
        kind=PagingByNumberCursorTokenOrLink.NUMBER,
        parameter="page",
        size_parameter="page_size",
        size=100,
        size_max=100,
        more="$.order_sn_increment_get_response.has_next",
    ),
    total=TotalCall(
        parameters={"use_has_next": "false", "page": "1", "page_size": "1"},
        value="$.order_sn_increment_get_response.total_count",
    ),
    clock=ClockCall(
        path="/api/router",
        parameters={"type": "pdd.time.get", "data_type": "JSON"},
        value="$.time_get_response.time",
        time_format=_BEIJING_TIME,
    ),
    rate=RateLimit(per_second=5, burst=5),
    rows=OrderRowFields(
        list="$.order_sn_increment_get_response.order_sn_list",
        id="$.order_sn",
        modified="$.updated_at",
        time_format=_BEIJING_TIME,
    ),
    access=PlatformAccess(
        signing=AuthenticationMethod.SORTED_MD5,
        key_parameter="client_id",
        token_parameter="access_token",  # noqa: S106 (the name of a parameter)
        time_parameter="timestamp",
        time_format=TimeFormat(form=TimeNotation.EPOCH),
        sign_parameter="sign",
    ),
    errors=ErrorFormat(
        code="$.error_response.error_code",
        message="$.error_response.error_msg",
        rules=(
            ErrorRule(meaning=ReactionToPlatformError.BUSY, codes=("70031", "52001", "52002")),
            ErrorRule(meaning=ReactionToPlatformError.EXPIRED, codes=("10019", "10035")),
        ),
    ),
)

SHOPIFY: Final = Capability(
    kind="shopify",
    # Each is served for a year; the setting `api_version` names the next one.
    version=ApiVersion(value="2025-01"),
    query=OrderQuery(
        path="/admin/api/{version}/orders.json",
        # Without a status only open orders are listed: an order that is closed would be lost.
        parameters={"status": "any", "order": "updated_at asc"},
        start="updated_at_min",
        end="updated_at_max",
    ),
    paging=Paging(
        kind=PagingByNumberCursorTokenOrLink.LINK,
        size_parameter="limit",
        size=250,
        size_max=250,
        rows_max=25_000,
    ),
    total=TotalCall(path="/admin/api/{version}/orders/count.json", value="$.count", max=25_001),
    clock=ClockCall(path="/admin/api/{version}/shop.json"),
    rate=RateLimit(per_second=2, burst=40),
    rows=OrderRowFields(list="$.orders", id="$.id", modified="$.updated_at"),
    access=PlatformAccess(signing=AuthenticationMethod.HEADER, header="X-Shopify-Access-Token"),
    errors=ErrorFormat(
        rules=(ErrorRule(meaning=ReactionToPlatformError.BUSY, statuses=(429,), retry_after_seconds=2),)
    ),
)

WOOCOMMERCE: Final = Capability(
    kind="woocommerce",
    query=OrderQuery(
        path="/wp-json/wc/v3/orders",
        # Sorted by id, no order changes its place among the others: only leaving and entering the window moves rows.
        parameters={"dates_are_gmt": "true", "orderby": "id", "order": "asc", "status": "any"},
        start="modified_after",
        end="modified_before",
        start_inclusive=False,
        end_inclusive=False,
        time_format=TimeFormat(form=TimeNotation.NAIVE),
    ),
    paging=Paging(
        kind=PagingByNumberCursorTokenOrLink.NUMBER,
        parameter="page",
        size_parameter="per_page",
        size=100,
        size_max=100,
    ),
    total=TotalCall(header="X-WP-Total", parameters={"page": "1", "per_page": "1"}),
    clock=ClockCall(path="/wp-json/"),
    rate=RateLimit(per_second=5, burst=10),
    rows=OrderRowFields(
        list="$", id="$.id", modified="$.date_modified_gmt", time_format=TimeFormat(form=TimeNotation.NAIVE)
    ),
    access=PlatformAccess(signing=AuthenticationMethod.BASIC),
)

AMAZON: Final = Capability(
    kind="amazon",
    query=OrderQuery(
        path="/orders/v0/orders",
        shop="MarketplaceIds",
        start="LastUpdatedAfter",
        end="LastUpdatedBefore",
        newest_seconds=120,
        history_seconds=2 * 365 * DAY_SECONDS,
    ),
    paging=Paging(
        kind=PagingByNumberCursorTokenOrLink.CURSOR,
        parameter="NextToken",
        size_parameter="MaxResultsPerPage",
        size=100,
        size_max=100,
        next="$.payload.NextToken",
        token_seconds=86_400,
    ),
    clock=ClockCall(path="/", counted=False),
    rate=RateLimit(per_second=0.0167, burst=20),
    rows=OrderRowFields(list="$.payload.Orders", id="$.AmazonOrderId", modified="$.LastUpdateDate"),
    detail=DetailCall(
        path="/orders/v0/orders/{id}/orderItems",
        row="$.payload.OrderItems",
        into="OrderItems",
        next="$.payload.NextToken",
        next_parameter="NextToken",
        rate=RateLimit(per_second=0.5, burst=30),
    ),
    access=PlatformAccess(
        signing=AuthenticationMethod.HEADER,
        header="x-amz-access-token",
        renewal=TokenRenewal(url="https://api.amazon.com/auth/o2/token"),
    ),
    errors=ErrorFormat(
        code="$.errors[0].code",
        message="$.errors[0].message",
        rules=(
            ErrorRule(meaning=ReactionToPlatformError.BUSY, codes=("QuotaExceeded",), retry_after_seconds=60),
            ErrorRule(meaning=ReactionToPlatformError.EXPIRED, statuses=(403,), pattern="(?i)expired"),
        ),
    ),
)

KNOWN_PLATFORMS: Final = {each.kind: each for each in (TAOBAO, PINDUODUO, SHOPIFY, WOOCOMMERCE, AMAZON)}
