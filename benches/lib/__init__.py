"""What every benchmark needs: statistics of pairs, facts of the host, pinned processes, bars and their record."""
