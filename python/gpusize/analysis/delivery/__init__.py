"""Whether the load that was asked for was sent."""
