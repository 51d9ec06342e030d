"""What all else stands on: errors, units, text, files, secrets, addresses, child processes."""
