"""What people see of samples and pipelines."""
