"""Activities of addresses: intake, the steps of a cycle, and maintenance."""
