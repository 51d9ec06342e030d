"""What a load is sent to: servers and their APIs, workflows, Triton, simulated clusters."""
