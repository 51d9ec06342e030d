"""Whether a share of requests is kept, looked at again and again: bets on blocks of requests, with stated errors."""
