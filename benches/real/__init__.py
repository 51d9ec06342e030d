"""Counts told from one replica of a real server, beside what more replicas of it did."""
