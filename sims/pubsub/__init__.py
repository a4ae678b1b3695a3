"""A stand-in for Google Pub/Sub: the REST subset that subscribers and publishers use, push, and faults by seed."""
