"""Series of a Prometheus server for a time that is over: presets of what is pulled, and how it is kept."""
