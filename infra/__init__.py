"""The tools: settings, engine, database, object store, guarded HTTP, logs, metrics, embedded parts."""
