"""The rules of transfers: joining a job, sending its shards over GSE, and permissions."""
