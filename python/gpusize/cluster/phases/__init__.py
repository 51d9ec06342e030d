"""From stamps to phases: when things happened, how long each phase took, and what never ended."""
