"""One run: its spec, encoding, sweep, probe, stop rules and level.json."""
