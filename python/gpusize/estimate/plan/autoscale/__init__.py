"""Autoscalers on a fitted replica: their policies as files, the signals that they go by, and how well they did."""
