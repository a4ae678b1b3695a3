"""The peers of orders: libraries that fetch from a bookmark."""
