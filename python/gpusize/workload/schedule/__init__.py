"""Plans: every due time, row and target of a load, worked out before it is sent, stored, and replayed."""
