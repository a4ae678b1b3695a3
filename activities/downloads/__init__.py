"""The hands of the download room."""
