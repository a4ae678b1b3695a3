"""Infrastructure: settings, engine, database, object store, limits, logs, metrics."""
