"""From records to what a level says: metrics, SLOs, windows, delivery, detectors, checks, summary."""
