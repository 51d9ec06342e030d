"""From a cluster's objects to stamps: watches, lists that close their gaps, and a canary that tells clocks and lag."""
