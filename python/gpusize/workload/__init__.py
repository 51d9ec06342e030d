"""What is sent and when: datasets, loads, schedules."""
