"""Whether estimates hold: simulated clusters with known answers, what an estimator may see of them, and the judge."""
