"""A comparison as people and CI read it."""
