"""Rules and models of orders: platforms, windows, watermarks, configuration."""
