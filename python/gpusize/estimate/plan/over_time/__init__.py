"""GPUs over time: demand, capacities, policies, a whole trace simulated."""
