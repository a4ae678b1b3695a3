"""The door: HTTP handlers, authentication, problems, OpenAPI."""
