"""A run on replicas that an autoscaler added and removed, judged by its records and by series that were pulled."""
