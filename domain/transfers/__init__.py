"""The knowledge of transfers: one file to many hosts, batched by time window, over GSE."""
