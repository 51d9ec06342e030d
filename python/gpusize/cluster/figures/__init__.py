"""Pictures of a cluster test."""
