"""How a cluster's scheduler fares: workloads submitted, watched, timed phase by phase, and drawn."""
