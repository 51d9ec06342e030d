"""What a terminal shows while a run goes on."""
