"""The hands of webhooks: the ledger of deliveries, the secrets that sign them, and the attempts."""
