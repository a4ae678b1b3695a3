#!/bin/sh
# Creates the namespace that Haulage works in, unless it exists; may be repeated.
set -eu

if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 72h
fi
