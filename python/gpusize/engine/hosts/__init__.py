"""Many machines as one engine: agents that join over TCP, one clock, merged counts, records that come home."""
