"""Ray: how we join a cluster, what its nodes must have, and how work is handed to it."""
