"""The hands of transfers: freeze a job, fetch its file, ship its shards, keep house."""
