"""The history of the schema, forwards and back."""
