"""Downloads beside their peers: the same rows from the same source, proved equal before they count."""
