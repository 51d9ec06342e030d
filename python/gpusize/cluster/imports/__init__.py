"""Results of other tools that time schedulers, as folders of cluster tests."""
