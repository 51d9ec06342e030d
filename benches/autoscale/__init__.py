"""Autoscaling: pulling a day of series, and what is made of it."""
