"""flowSvr's own Go SDK and its example worker, built and run against this API."""
