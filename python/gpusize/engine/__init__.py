"""The boundary with the extension: sessions, clocks, limits of connections, workers."""
