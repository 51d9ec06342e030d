"""The run folder: its schema, its files, its recovery."""
