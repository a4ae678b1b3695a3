"""The lab: the hosts of `deploy/hosts/hosts.toml` as namespaces of this machine, running what `deploy/` ships."""
