"""What people see of plans and loads."""
