"""Many runs: one for each combination of settings, and what runs around them."""
