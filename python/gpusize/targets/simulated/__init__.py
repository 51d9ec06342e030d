"""The simulated cluster: in virtual time, and as a server."""
