"""How each kind of platform speaks: its addresses, its times, its pages and its errors."""

from collections.abc import Callable

from sims.platforms.dialects.amazon import Amazon
from sims.platforms.dialects.base import Dialect
from sims.platforms.dialects.gateways import Pinduoduo, Taobao
from sims.platforms.dialects.plain import Plain
from sims.platforms.dialects.shops import Shopify, WooCommerce
from sims.platforms.scenario import Kind

DIALECTS: dict[Kind, Callable[[bool], Dialect]] = {
    "plain": Plain,
    "taobao": Taobao,
    "pinduoduo": Pinduoduo,
    "shopify": Shopify,
    "woocommerce": WooCommerce,
    "amazon": Amazon,
}

__all__ = ["DIALECTS", "Dialect"]
