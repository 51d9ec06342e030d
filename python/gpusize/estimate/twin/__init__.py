"""The twin: a simulated cluster of replicas like the measured one, searched for the fewest that keep every SLO."""
