"""A rehearsal of an upgrade: the next version is rolled in and back under load of all five systems."""
