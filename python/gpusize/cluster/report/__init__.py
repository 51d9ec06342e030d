"""What people and machines read of a cluster test: the terminal, JSON, JUnit."""
