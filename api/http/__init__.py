"""How the API speaks HTTP: routes, models, authentication, parsing, problems, and the server."""
